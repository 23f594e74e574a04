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

SMALL = "400"
"""Offsets a trigger: many epochs, so that a kill finds one of them under way."""


def main(master: str, bootstrap: str, directory: str) -> None:
    place = Path(directory)
    spark = session("exactly once", master=master, conf={"spark.sql.shuffle.partitions": "2"})
    orders = source(spark, bootstrap)
    queries = [pass_on(orders, bootstrap, place), sum_up(orders, bootstrap, place)]
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


def pass_on(orders: DataFrame, bootstrap: str, place: Path) -> StreamingQuery:
    return (
        orders.select("key", "value")
        .writeStream.format("posthouse")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "passed")
        .option("checkpointLocation", str(place / "checkpoints" / "passed"))
        .start()
    )


def sum_up(orders: DataFrame, bootstrap: str, place: Path) -> StreamingQuery:
    """Spark lets no Python sink take updates, so every batch of them is a write with its number."""

    def write(totals: DataFrame, number: int) -> None:
        (
            totals.selectExpr("key", "concat(`count(1)`, ' ', `sum(number)`) AS value")
            .write.format("posthouse")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", "totals")
            .option("appId", "totals")
            .option("batchId", number)
            .mode("append")
            .save()
        )

    numbers = orders.selectExpr("key", "CAST(CAST(value AS STRING) AS BIGINT) AS number")
    return (
        numbers.groupBy("key")
        .agg({"number": "sum", "*": "count"})
        .writeStream.outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", str(place / "checkpoints" / "totals"))
        .start()
    )


def check(queries: list[StreamingQuery]) -> None:
    for query in queries:
        if (failure := query.exception()) is not None:
            raise failure


if __name__ == "__main__":
    main(*sys.argv[1:])
