"""Reads a topic with Spark's own Kafka connector and with ours, in every way that both know.

    connector_program.py BOOTSTRAP CONNECTOR

Prints as JSON, for each way, what differs. Needs a connector from Maven Central.
"""

import json
import sys

from pyspark.sql import SparkSession

from posthouse.spark.session import session

WAYS: dict[str, dict[str, str]] = {
    "plain": {"subscribe": "t"},
    "headers": {"subscribe": "t", "includeHeaders": "true"},
    "pattern": {"subscribePattern": "t.*"},
    "assigned": {"assign": '{"t": [1]}'},
    "offsets": {
        "subscribe": "t",
        "startingOffsets": '{"t": {"0": 2, "1": -2}}',
        "endingOffsets": '{"t": {"0": 5, "1": -1}}',
    },
    "times": {"subscribe": "t", "startingTimestamp": "1003000", "endingTimestamp": "1006000"},
    "times by partition": {
        "subscribe": "t",
        "startingOffsetsByTimestamp": '{"t": {"0": 1002000, "1": 1004000}}',
    },
    "pieces": {"subscribe": "t", "minPartitions": "5"},
}

# PySpark has them, and they are a hundred megabytes.
BROUGHT = ("org.apache.hadoop:hadoop-client-api", "org.apache.hadoop:hadoop-client-runtime")


def main(bootstrap: str, connector: str) -> None:
    conf = {"spark.jars.packages": connector, "spark.jars.excludes": ",".join(BROUGHT)}
    spark = session("connector", master="local[2]", conf=conf)
    print(json.dumps({name: differences(spark, bootstrap, way) for name, way in WAYS.items()}))
    spark.stop()


def differences(spark: SparkSession, bootstrap: str, options: dict[str, str]) -> list[str]:
    theirs, ours = (
        spark.read.format(name).option("kafka.bootstrap.servers", bootstrap).options(**options).load()
        for name in ("kafka", "posthouse")
    )
    found = [] if theirs.schema == ours.schema else [f"schemas: {theirs.schema} and {ours.schema}"]
    rows = [sorted(map(str, frame.collect())) for frame in (theirs, ours)]
    if not rows[0]:
        found.append("nothing was read")
    return found + [f"{one} and {other}" for one, other in zip(*rows, strict=True) if one != other]


if __name__ == "__main__":
    main(*sys.argv[1:])
