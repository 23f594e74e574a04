"""Topics and partitions: traffic, and what their logs hold."""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.model.errors import UnknownPartition
from posthouse.model.topics import Topic
from posthouse.protocols.admin.metrics.family import counter, gauge
from posthouse.protocols.admin.metrics.samples import Labels, Samples
from posthouse.protocols.admin.metrics.selection import OTHER, Selection
from posthouse.protocols.admin.metrics.table import Row, Table

TOPICS: Final = gauge("posthouse_topics", "Topics.")
PARTITIONS: Final = gauge("posthouse_partitions", "Partitions of all topics.")
TRAFFIC: Final = {
    "records_in": counter("posthouse_topic_records_in_total", "Records appended, by all protocols.", "topic"),
    "bytes_in": counter("posthouse_topic_bytes_in_total", "Bytes of batches appended.", "topic"),
    "records_out": counter(
        "posthouse_topic_records_out_total",
        "Records sent to clients. Of fetches with very many batches, an estimate.",
        "topic",
    ),
    "bytes_out": counter(
        "posthouse_topic_bytes_out_total",
        "Bytes of batches sent to Kafka clients, and of messages delivered to AMQP clients.",
        "topic",
    ),
}
TOPIC_BYTES: Final = gauge("posthouse_topic_log_bytes", "Size of the log, all partitions.", "topic")
TOPIC_RECORDS: Final = gauge(
    "posthouse_topic_log_records", "Offsets between start and end, all partitions.", "topic"
)
_OF_PARTITION: Final = ("topic", "partition")
BYTES: Final = gauge("posthouse_partition_log_bytes", "Size of the log.", *_OF_PARTITION)
START: Final = gauge("posthouse_partition_start_offset", "First offset.", *_OF_PARTITION)
END: Final = gauge(
    "posthouse_partition_end_offset", "Offset of the next record (high watermark).", *_OF_PARTITION
)
_counts: Final = attrgetter(*TRAFFIC)
_STEPS: Final = 32
"""Partitions between two looks at the clock."""
FAMILIES: Final = (TOPICS, PARTITIONS, *TRAFFIC.values(), TOPIC_BYTES, TOPIC_RECORDS, BYTES, START, END)


@dataclass(slots=True)
class _Rows:
    """Objects that are shown by name: labels and values of each."""

    labels: list[Labels] = field(default_factory=list)
    values: list[Row] = field(default_factory=list)


class TopicMetrics:
    def __init__(self, broker: Broker, limit: int) -> None:
        self._broker = broker
        self._limit = limit
        self._selection = Selection(limit, tuple(TRAFFIC))
        self._topic_table = Table(*TRAFFIC.values(), TOPIC_BYTES, TOPIC_RECORDS)
        self._partition_table = Table(BYTES, START, END)

    async def collect(self, samples: Samples) -> dict[str, int]:
        """How many of each kind of objects were not shown by name."""
        selection, traffic = self._selection, self._broker.traffic
        topics = list(self._broker.topics)
        partitions = hidden = 0
        other_bytes = other_records = 0
        of_topics, of_partitions = _Rows(), _Rows()
        steps = 0
        for topic in topics:
            if self._broker.topics.find(topic.name) is None:
                continue  # it was deleted meanwhile
            counted = traffic.of(topic.name)
            shown = selection.shows(topic.name, counted)
            by_name = shown and partitions - hidden + topic.partitions <= self._limit
            partitions += topic.partitions
            if not by_name:
                hidden += topic.partitions
            size = records = 0
            try:
                for first in range(0, topic.partitions, _STEPS):
                    indices = range(first, min(first + _STEPS, topic.partitions))
                    more_bytes, more_records = self._look(topic, indices, of_partitions if by_name else None)
                    size, records = size + more_bytes, records + more_records
                    steps += len(indices)
                    if steps >= _STEPS:
                        steps = 0
                        await samples.turns.next()
            except UnknownPartition:
                continue
            if shown:
                of_topics.labels.append((topic.name,))
                of_topics.values.append((*_counts(counted), size, records))
            else:
                other_bytes += size
                other_records += records
        selection.done()
        samples.add(TOPICS, len(topics))
        samples.add(PARTITIONS, partitions)
        await self._topic_table.fill(samples, of_topics.labels, of_topics.values)
        await self._partition_table.fill(samples, of_partitions.labels, of_partitions.values)
        if selection.has_other:
            for name, total in (await selection.totals(samples.turns)).items():
                samples.add(TRAFFIC[name], total, OTHER)
            samples.add(TOPIC_BYTES, other_bytes, OTHER)
            samples.add(TOPIC_RECORDS, other_records, OTHER)
        return {"topics": selection.summed, "partitions": hidden}

    def _look(self, topic: Topic, indices: range, by_name: _Rows | None) -> tuple[int, int]:
        """The bytes and records of some partitions, which are also shown if they are to be shown by name."""
        extent = self._broker.extent
        total = records = 0
        for index in indices:
            size, bounds = extent(topic.partition(index))
            total += size
            records += bounds.end - bounds.start
            if by_name is not None:
                by_name.labels.append((topic.name, str(index)))
                by_name.values.append((size, bounds.start, bounds.end))
        return total, records
