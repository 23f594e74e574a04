"""Records of a key read by Spark, with the key index, without it, and with Spark's own filter:
`python -m bench.spark_keys`.

Two topics with the same records, a key each, of which one is indexed. The kinds of reads take turns in one
session, with keys drawn at random; the first turn is not counted.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from posthouse.client import Client
from posthouse.client.spans import Span
from posthouse.records.record_names import Name, NameKind
from posthouse.spark.session import session
from posthouse.testing import ThreadBroker

_PARTITIONS = 4
_VALUE = b"v" * 100
_NOWHERE = Name(NameKind.KEY, b"in no record")
_Read = Callable[[bytes], DataFrame]


def measure(spark: SparkSession, broker: ThreadBroker, records: int, rounds: int) -> None:
    with Client(broker.kafka) as client:
        for topic in ("indexed", "plain"):
            _fill(client, topic, records)
        _wait_for_index(client, records)
    reads: dict[str, _Read] = {
        "option `key`, with the index": lambda key: _source(spark, broker, "indexed", key),
        "option `key`, without it": lambda key: _source(spark, broker, "plain", key),
        "`WHERE key = …` in Spark": lambda key: _filtered(_source(spark, broker, "plain"), key),
    }
    drawn = random.Random(1)
    times: dict[str, list[float]] = {each: [] for each in reads}
    for number in range(rounds + 1):
        for name, read in reads.items():
            wanted = drawn.randrange(records)
            began = time.perf_counter()
            rows = read(b"order-%d" % wanted).select("partition", "offset", "value").collect()
            took = time.perf_counter() - began
            assert [(row.partition, row.offset) for row in rows] == [divmod(wanted, records // _PARTITIONS)]
            if number:
                times[name].append(took)
    print(f"| {records:,} records in {_PARTITIONS} partitions | median | slowest |")
    print("|---|---|---|")
    for name, found in times.items():
        print(f"| {name} | {statistics.median(found) * 1000:,.0f} ms | {max(found) * 1000:,.0f} ms |")


def _source(spark: SparkSession, broker: ThreadBroker, topic: str, key: bytes | None = None) -> DataFrame:
    options = {"kafka.bootstrap.servers": broker.kafka, "subscribe": topic}
    if key is not None:
        options["key"] = key.decode()
    return spark.read.format("posthouse").options(**options).load()


def _filtered(frame: DataFrame, key: bytes) -> DataFrame:
    return frame.where(F.col("key") == F.lit(key))


def _fill(client: Client, topic: str, records: int) -> None:
    settings = {"index.keys": str(topic == "indexed").lower(), "retention.ms": "-1"}
    client.create_topic(topic, partitions=_PARTITIONS, settings=settings)
    each = records // _PARTITIONS
    with client.producer(topic) as producer:
        for number in range(records):
            producer.send(_VALUE, b"order-%d" % number, partition=number // each)


def _wait_for_index(client: Client, records: int) -> None:
    info = client.topic("indexed")
    wanted = [(partition, Span(0, records // _PARTITIONS)) for partition in range(_PARTITIONS)]
    while any(client.key_places(info, _NOWHERE, wanted, gap=0)):
        time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    records = arguments.records // _PARTITIONS * _PARTITIONS
    with tempfile.TemporaryDirectory(prefix="posthouse-") as place:
        spark = session("keys")
        try:
            with ThreadBroker(data=Path(place)) as broker:
                measure(spark, broker, records, arguments.rounds)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
