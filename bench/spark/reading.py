"""Reading a topic: our source, the ceiling, the archive, plain Parquet and Spark's Kafka connector."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.spark import queries
from bench.spark.contests import Contender, contest
from bench.spark.figures import Entry
from bench.spark.queries import Source
from bench.spark.sessions import Session, SessionFailed
from bench.spark.stage import OURS, PURE, Stage
from bench.spark.workload import SMALL_BATCH, Filled, Shape, fill
from posthouse.client import Client
from posthouse.client.ranges import FETCH_BYTES
from posthouse.records.compression import Codec
from posthouse.spark.schema import source_schema

A, A_PURE, B, C, C_NATIVE, D, E, E_TUNED = "a", "a′", "b", "c", "c′", "d", "e", "e′"

_LARGE_FETCHES = {"kafka.max.partition.fetch.bytes": str(FETCH_BYTES), "kafka.max.poll.records": "10000"}
"""As our source does it, so that it is known what the connector's own defaults cost it."""


def reading(stage: Stage) -> Iterator[Entry]:
    scale = stage.scale
    small = Shape(value_bytes=100, rows=scale.small_rows)
    large = Shape(value_bytes=1024, rows=scale.large_rows)
    for shape in (small, large):
        yield from _read_all(stage, shape, with_files=True)
    for shape in (
        replace(small, codec=Codec.ZSTD),
        replace(large, codec=Codec.ZSTD),
        replace(small, batch_bytes=SMALL_BATCH),
    ):
        yield from _read_all(stage, shape, with_files=False)


def _read_all(stage: Stage, shape: Shape, *, with_files: bool) -> Iterator[Entry]:
    filled = fill(stage.served, shape, stage.directory)
    field = _Field(stage, filled)
    section = f"Reading: {shape.name}"
    try:
        yield from field.contest(section, with_files=with_files, two_columns=False)
        if with_files:
            yield from field.contest(f"{section}, only offset and value", with_files=True, two_columns=True)
    finally:
        field.clear()


class _Field:
    """The contenders on one topic."""

    def __init__(self, stage: Stage, filled: Filled) -> None:
        self._stage = stage
        self._filled = filled
        self._topic = filled.shape.topic
        self._archive = stage.directory / f"archive-{self._topic}"
        self._parquet = stage.directory / f"parquet-{self._topic}"

    def contest(self, section: str, *, with_files: bool, two_columns: bool) -> Iterator[Entry]:
        yield from contest(
            section,
            self._contenders(with_files, two_columns),
            self._stage.scale.rounds,
            amount=self._filled.rows,
            unit="rows/s",
            megabytes=self._filled.megabytes(with_keys=not two_columns),
        )

    def clear(self) -> None:
        with Client(self._stage.served.address) as client:
            client.delete_topic(self._topic)
        for directory in (self._archive, self._parquet, self._filled.template):
            shutil.rmtree(directory, ignore_errors=True)

    def _contenders(self, with_files: bool, two_columns: bool) -> list[Contender]:
        stage, topic = self._stage, self._topic
        kafka = {
            "kafka.bootstrap.servers": stage.served.address,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "endingOffsets": "latest",
        }
        ours = Source(format="posthouse", options=kafka, takes_schema=True, two_columns=two_columns)
        ready = {"template": str(self._filled.template), "cycles": str(self._filled.cycles)}
        ceiling = replace(ours, format="ready-made", options=ready)
        # Against a connector of another release there is a figure, but no verdict.
        faster = 1.5 if stage.is_connector_of_this_release else None
        recommended, pure = partial(stage.session, OURS), partial(stage.session, PURE)
        found = [
            self._one(A, "our source", recommended, ours, against=((B, 0.6), (E, faster), (E_TUNED, None))),
            self._one(A_PURE, "our source without the compiled kernel", pure, ours, against=((A, None),)),
            self._one(B, "ready-made Arrow batches", recommended, ceiling, is_yardstick=True),
        ]
        if with_files:
            archive = str(self._archive)
            spanning = replace(ours, options={**kafka, "archive": archive})
            native = Source(format="archive", path=archive, topic=topic, two_columns=two_columns)
            plain = Source(format="parquet", path=str(self._parquet), two_columns=two_columns)
            found += [
                self._one(C, "archive, by option archive=DIR", recommended, spanning, against=((D, 0.9),)),
                self._one(C_NATIVE, "archive, by read_archive", recommended, native, against=((D, 0.9),)),
                self._one(D, "plain Parquet", recommended, plain, is_yardstick=True),
            ]
        connector = Source(format="kafka", options=kafka, two_columns=two_columns)
        tuned = replace(connector, options=kafka | _LARGE_FETCHES)
        name = stage.connector_name
        return [
            *found,
            self._one(E, name, stage.connector, connector, is_yardstick=True),
            self._one(E_TUNED, f"{name}, large fetches", stage.connector, tuned, is_yardstick=True),
        ]

    def _one(
        self,
        key: str,
        name: str,
        session: Callable[[], Session],
        source: Source,
        *,
        against: tuple[tuple[str, float | None], ...] = (),
        is_yardstick: bool = False,
    ) -> Contender:
        needs_files = key in (C, C_NATIVE, D)
        return Contender(
            key=key,
            name=name,
            run=lambda: session().call(queries.read, source),
            check=partial(self._check, session, source, needs_files),
            against=against,
            is_yardstick=is_yardstick,
        )

    def _check(self, session: Callable[[], Session], source: Source, needs_files: bool) -> None:
        if needs_files and not self._parquet.exists():
            self._write_files()
        rows = session().call(queries.count, source)
        if rows != self._filled.rows:
            raise SessionFailed(f"it read {rows:,} rows, and there are {self._filled.rows:,}")

    def _write_files(self) -> None:
        address = self._stage.served.address
        self._stage.session(OURS).call(queries.archive, address, str(self._archive), self._topic)
        same_rows(self._archive, self._parquet, self._topic)


def same_rows(archive: Path, target: Path, topic: str) -> None:
    """The files of an archive as plain Parquet: the columns of the source only, in the same row groups."""
    target.mkdir()
    names = source_schema(include_headers=False).names
    for path in sorted(archive.rglob("*.parquet")):
        with pq.ParquetFile(path) as file:
            stored = file.schema_arrow
            fields = [
                pa.field("topic", pa.string()) if name == "topic" else stored.field(name) for name in names
            ]
            schema = pa.schema(fields)
            repeating = [name for name in names if name not in ("value", "offset", "timestamp")]
            with pq.ParquetWriter(
                target / path.name, schema, compression="zstd", use_dictionary=repeating
            ) as writer:
                for number in range(file.num_row_groups):
                    group = file.read_row_group(number, columns=[name for name in names if name != "topic"])
                    topics = pa.repeat(topic, group.num_rows)
                    columns = [topics if name == "topic" else group.column(name) for name in names]
                    table = pa.table(columns, schema=schema)
                    writer.write_table(table, row_group_size=max(1, table.num_rows))
