"""A driver on a Spark cluster that does what it is told, line by line.

    cluster_program.py MASTER BOOTSTRAP CONF

CONF are settings of Spark as JSON. Each line of the input is a call and its options, as JSON; so is each
answer.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from posthouse.spark.archive import Archiver
from posthouse.spark.session import session

TOPIC = "orders"
_DIGEST = "sum(CAST(xxhash64(partition, offset, key, value, timestamp) AS DECIMAL(38))) AS digest"


class Driver:
    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self._spark = spark
        self._bootstrap = bootstrap

    def executors(self, options: Mapping[str, str]) -> list[str]:
        """Where the executors that read a topic work."""
        found = self._read(options).rdd.mapPartitions(_where).distinct().collect()
        return sorted(found)

    def read(self, options: Mapping[str, str]) -> dict[str, Any]:
        """Rows, a sum over all of their columns, and the time that it took."""
        begun = time.perf_counter()
        return _summary(self._read(options)) | {"seconds": time.perf_counter() - begun}

    def stream(self, options: Mapping[str, str]) -> dict[str, Any]:
        """What a stream of all available records reads, in several micro-batches, into memory."""
        given = {key: value for key, value in options.items() if key != "checkpoint"}
        rows = self._spark.readStream.format("posthouse").options(**self._source(), **given).load()
        query = (
            rows.writeStream.format("memory")
            .queryName("streamed")
            .option("checkpointLocation", options["checkpoint"])
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = len([each for each in query.recentProgress if each["numInputRows"]])
        return _summary(self._spark.table("streamed")) | {"batches": batches}

    def archive(self, options: Mapping[str, str]) -> dict[str, Any]:
        """How many records the archive job has written, and what is read with the archive."""
        given = {key: value for key, value in options.items() if key != "place"}
        report = Archiver(self._spark, self._bootstrap, options["place"], options=given).run([TOPIC])
        return _summary(self._read({"archive": options["place"]})) | {"archived": report.records}

    def _read(self, options: Mapping[str, str]) -> DataFrame:
        return self._spark.read.format("posthouse").options(**self._source(), **options).load()

    def _source(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}


def _summary(rows: DataFrame) -> dict[str, Any]:
    [found] = rows.selectExpr("count(*) AS rows", _DIGEST).collect()
    return {"rows": found.rows, "digest": str(found.digest)}


def _where(rows: object) -> Iterator[str]:
    """The directory of the executor: several of them may be on one host."""
    assert TaskContext.get() is not None
    yield str(Path.cwd())


def main(master: str, bootstrap: str, conf: str) -> None:
    spark = session("objects", master=master, conf=json.loads(conf))
    driver = Driver(spark, bootstrap)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        call, options = json.loads(line)
        print(json.dumps(getattr(driver, call)(options)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
