"""The Spark program that is killed again and again: `orders` is passed on, and summed up by key.

    program.py MASTER BOOTSTRAP DIRECTORY

It ends when there is a file `stop` in the directory and everything has been read.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from posthouse.spark.session import session

SMALL = "150"
"""Offsets a trigger: many epochs, so that a kill finds one of them under way."""


def main(master: str, bootstrap: str, directory: str) -> None:
    place = Path(directory)
    spark = session("exactly once", master=master, conf={"spark.sql.shuffle.partitions": "2"})
    orders = source(spark, bootstrap)
    queries = [
        sink(orders.select("key", "value"), bootstrap, "passed", place).outputMode("append").start(),
        sink(totals(orders), bootstrap, "totals", place).outputMode("update").start(),
    ]
    (place / "started").touch()
    while not (place / "stop").exists():
        check(queries)
        time.sleep(0.1)  # a file says nothing when it appears
    for query in queries:
        query.processAllAvailable()
        query.stop()
    check(queries)
    spark.stop()


def source(spark: SparkSession, bootstrap: str) -> DataFrame:
    return (
        spark.readStream.format("posthouse")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", SMALL)
        .load()
    )


def totals(orders: DataFrame) -> DataFrame:
    numbers = orders.selectExpr("key", "CAST(CAST(value AS STRING) AS BIGINT) AS number")
    by_key = numbers.groupBy("key").agg({"number": "sum", "*": "count"})
    return by_key.selectExpr("key", "concat(`count(1)`, ' ', `sum(number)`) AS value")


def sink(frame: DataFrame, bootstrap: str, topic: str, place: Path):  # type: ignore[no-untyped-def]
    return (
        frame.writeStream.format("posthouse")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", str(place / "checkpoints" / topic))
    )


def check(queries: list[StreamingQuery]) -> None:
    for query in queries:
        if (failure := query.exception()) is not None:
            raise failure


if __name__ == "__main__":
    main(*sys.argv[1:])
