"""The ceiling: a Python data source that has its Arrow batches ready and only hands them over.

    spark.read.format("ready-made").option("template", DIRECTORY).option("cycles", 60)
    spark.readStream.format("ready-made-stream")                  one row of each of four partitions a trigger

The batches hold the rows of the topic, in the size in which our source hands them over, but each in memory of
its own; a worker builds them once and yields them again. What it reaches is what the API itself allows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from bench.spark.workload import PARTITIONS, template_file
from posthouse.records.batch import iter_headers
from posthouse.spark.columns import DEFAULT_MAX_BYTES, DEFAULT_MAX_ROWS, BatchDecoder
from posthouse.spark.schema import arrow_schema, source_schema

Counter = dict[str, int]


@dataclass(frozen=True, slots=True)
class Numbered(InputPartition):
    number: int


class ReadyMade(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ready-made"

    def schema(self) -> StructType:
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options["template"], int(self.options["cycles"]), schema)


class _Reader(DataSourceReader):
    def __init__(self, template: str, cycles: int, schema: StructType) -> None:
        self._template = template
        self._cycles = cycles
        self._schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        return [Numbered(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Numbered)
        batches = ready_batches(self._template, partition.number, self._schema)
        for _ in range(self._cycles):
            yield from batches


@lru_cache(maxsize=4 * PARTITIONS)
def ready_batches(template: str, partition: int, schema: pa.Schema) -> tuple[pa.RecordBatch, ...]:
    data = memoryview(template_file(Path(template), partition).read_bytes())
    decoder = BatchDecoder(schema, Path(template).name, partition)
    decoded: list[pa.RecordBatch] = []
    for position, header in iter_headers(data):
        decoded += decoder.add(data[position : position + header.length], header)
    decoded += decoder.finish()
    table = pa.Table.from_batches(decoded, schema)
    rows = max(1, min(DEFAULT_MAX_ROWS, table.num_rows * DEFAULT_MAX_BYTES // table.nbytes))
    return tuple(_alone(table.slice(start, rows)) for start in range(0, table.num_rows, rows))


def _alone(table: pa.Table) -> pa.RecordBatch:
    """One batch that shares no memory with others: writing and reading it lays its buffers out anew."""
    [batch] = table.combine_chunks().to_batches()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


class ReadyMadeStream(DataSource):
    """Advances at every trigger, and knows everything beforehand."""

    @classmethod
    def name(cls) -> str:
        return "ready-made-stream"

    def schema(self) -> StructType:
        return source_schema(include_headers=False)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(schema)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, schema: StructType) -> None:
        row = [b"key", b"value", "ready", 0, 0, datetime.fromtimestamp(0, UTC), 0]
        kinds = arrow_schema(schema)
        arrays = [pa.array([each], field.type) for each, field in zip(row, kinds, strict=True)]
        self._batch = pa.RecordBatch.from_arrays(arrays, schema=kinds)

    def initialOffset(self) -> Counter:
        return {"trigger": 0}

    def latestOffset(self, start: Counter, limit: ReadLimit) -> Counter:
        return {"trigger": start["trigger"] + 1}

    def partitions(self, start: Counter, end: Counter) -> Sequence[InputPartition]:
        return [Numbered(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield self._batch
