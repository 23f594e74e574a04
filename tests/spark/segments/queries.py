"""Batch queries of the topic `orders`, planned and read in the process of the test."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from posthouse.client import Client
from posthouse.spark.options import parse_source
from posthouse.spark.reading import BatchReader
from posthouse.spark.schema import source_schema
from tests.spark.segments.clusters import Cluster

Row = tuple[int, int, bytes | None]
"""Partition, offset and value."""


class Query:
    def __init__(self, cluster: Cluster, **options: str) -> None:
        given = {"kafka.bootstrap.servers": cluster.broker.kafka, "subscribe": "orders", **options}
        self._reader = BatchReader(parse_source(given, streaming=False), source_schema(include_headers=False))
        self.pieces: Sequence[InputPartition] = self._reader.partitions()

    def rows(self) -> list[Row]:
        """Of all tasks, by partition; within a partition as they came."""
        return sorted((row for piece in self.pieces for row in self.rows_of(piece)), key=lambda row: row[0])

    def rows_of(self, piece: InputPartition) -> Iterator[Row]:
        for batch in self._reader.read(piece):
            assert isinstance(batch, pa.RecordBatch)
            columns = (batch.column(name).to_pylist() for name in ("partition", "offset", "value"))
            yield from zip(*columns, strict=True)


def rows_of(cluster: Cluster, **options: str) -> list[Row]:
    return Query(cluster, **options).rows()


def fill(client: Client, count: int, start: int = 0) -> list[Row]:
    """Records in small batches; returns the rows of partition 0."""
    with client.producer("orders", batch_bytes=4000) as producer:
        for number in range(start, start + count):
            producer.send(b"%d" % number)
    return [(0, number, b"%d" % number) for number in range(start, start + count)]
