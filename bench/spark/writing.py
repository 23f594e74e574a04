"""Writing rows to a topic: our sink, Spark's Kafka sink, and the same query with nowhere to write to."""

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from bench.spark import queries
from bench.spark.contests import Contender, contest
from bench.spark.figures import Entry
from bench.spark.queries import Source
from bench.spark.ready import ready_batches
from bench.spark.sessions import Session, SessionFailed
from bench.spark.stage import OURS, Stage
from bench.spark.workload import PARTITIONS, Filled, Shape, fill
from posthouse.client import Client
from posthouse.client.positions import LATEST

_SHARE = 4
"""Every round writes so many times fewer rows than are read: they go to the disk, and are synced."""

_COLUMNS = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary())])


def writing(stage: Stage) -> Iterator[Entry]:
    scale = stage.scale
    for shape in (
        Shape(value_bytes=100, rows=scale.small_rows // _SHARE),
        Shape(value_bytes=1024, rows=scale.large_rows // _SHARE),
    ):
        yield from _write_all(stage, shape)


def _write_all(stage: Stage, shape: Shape) -> Iterator[Entry]:
    """The rows come from Parquet, which every session reads at the same speed."""
    filled = fill(stage.served, shape, stage.directory)
    directory = stage.directory / f"rows-{shape.topic}"
    directory.mkdir()
    for partition in range(PARTITIONS):
        batches = ready_batches(str(filled.template), partition, _COLUMNS)
        table = pa.Table.from_batches(list(batches) * filled.cycles)
        pq.write_table(table, directory / f"{partition}.parquet", compression="zstd", use_dictionary=False)
    rows = Source(format="parquet", path=str(directory))
    writers = _Writers(stage, filled, rows)
    try:
        yield from contest(
            f"Writing: {shape.name}",
            [
                writers.ours("f", "our sink, exactly once", "exactly-once"),
                writers.ours("f′", "our sink, at least once", "at-least-once"),
                writers.connector("g"),
                writers.nowhere("h"),
            ],
            stage.scale.rounds,
            amount=filled.rows,
            unit="rows/s",
            megabytes=filled.megabytes(),
        )
    finally:
        with Client(stage.served.address) as client:
            client.delete_topic(shape.topic)
        shutil.rmtree(directory)
        shutil.rmtree(filled.template)


class _Writers:
    def __init__(self, stage: Stage, filled: Filled, rows: Source) -> None:
        self._stage = stage
        self._filled = filled
        self._rows = rows
        self._numbers = itertools.count()

    def ours(self, key: str, name: str, delivery: str) -> Contender:
        run = self._to_topic(partial(self._stage.session, OURS), "posthouse", {"delivery": delivery})
        return Contender(key=key, name=name, run=run, against=(("g", None), ("h", None)))

    def connector(self, key: str) -> Contender:
        run = self._to_topic(self._stage.connector, "kafka", {})
        return Contender(key=key, name=self._stage.connector_name, run=run, is_yardstick=True)

    def nowhere(self, key: str) -> Contender:
        def run() -> float:
            return self._stage.session(OURS).call(queries.write, self._rows, "noop", {})

        return Contender(key=key, name="the same query into noop", run=run, is_yardstick=True)

    def _to_topic(
        self, session: Callable[[], Session], format: str, options: Mapping[str, str]
    ) -> Callable[[], float]:
        """Each round has a topic of its own, which is checked and deleted afterwards."""

        def run() -> float:
            topic = f"written-{next(self._numbers)}-{self._filled.shape.topic}"
            address = self._stage.served.address
            with Client(address) as client:
                client.create_topic(topic, partitions=PARTITIONS)
                target = {"kafka.bootstrap.servers": address, "topic": topic, **options}
                try:
                    seconds = session().call(queries.write, self._rows, format, target)
                    self._check(client, topic)
                finally:
                    client.delete_topic(topic)
            return seconds

        return run

    def _check(self, client: Client, topic: str) -> None:
        """Markers of transactions take offsets too, so there may be a few more offsets than rows."""
        info = client.topic(topic)
        ends = client.find_offsets([(info, range(info.partitions))], LATEST, committed=True)
        if sum(ends.values()) < self._filled.rows:
            raise SessionFailed(f"only {sum(ends.values()):,} of {self._filled.rows:,} rows arrived")
