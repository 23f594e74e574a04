"""A program for a Spark cluster: a topic is read in two executors, summed up, and passed on as a stream.

    cluster_program.py MASTER BOOTSTRAP CHECKPOINT

Prints what it found as JSON. It uses nothing but the data source that Spark finds by itself.
"""

import json
import os
import sys

from pyspark import TaskContext
from pyspark.sql import SparkSession

from posthouse.spark.session import session


def main(master: str, bootstrap: str, checkpoint: str) -> None:
    spark = session("cluster", master=master, conf={"spark.sql.shuffle.partitions": "2"})
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": "in"}
    frame = spark.read.format("posthouse").options(**source).option("minPartitions", 8).load()
    executors = frame.rdd.mapPartitions(where).distinct().collect()
    rows = frame.count()
    stream = spark.readStream.format("posthouse").options(**source).option("startingOffsets", "earliest")
    query = (
        stream.load()
        .select("key", "value")
        .writeStream.format("posthouse")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "out")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps({"executors": sorted(executors), "driver": driver(spark), "rows": rows}))
    spark.stop()


def where(rows: object) -> list[int]:
    """The process of the JVM that this Python worker belongs to."""
    assert TaskContext.get() is not None
    return [os.getppid()]


def driver(spark: SparkSession) -> str:
    return str(spark.sparkContext.master)


if __name__ == "__main__":
    main(*sys.argv[1:])
