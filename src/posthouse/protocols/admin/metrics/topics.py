"""Topics and partitions: traffic, and what their logs hold."""

from operator import attrgetter
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.model.errors import UnknownPartition
from posthouse.model.topics import Topic
from posthouse.protocols.admin.metrics.family import counter, gauge
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.admin.metrics.selection import OTHER, Selection
from posthouse.protocols.admin.metrics.table import Rows, Table

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
        "Bytes of batches sent to Kafka clients, and of messages delivered to AMQP and RocketMQ clients.",
        "topic",
    ),
    "records_passed_over": counter(
        "posthouse_topic_records_passed_over_total",
        "Records that a RocketMQ consumer's filter left out though another consumer of its group wants them.",
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
        partitions = hidden = steps = 0
        other_bytes = other_records = 0
        of_topics, of_partitions = Rows(), Rows()
        for topic in topics:
            if self._broker.topics.find(topic.name) is None:
                continue  # it was deleted meanwhile
            counted = traffic.of(topic.name)
            shown = selection.shows(topic.name, counted)
            by_name = shown and partitions - hidden + topic.partitions <= self._limit
            partitions += topic.partitions
            if not by_name:
                hidden += topic.partitions
            rows = of_partitions if by_name else None
            steps += topic.partitions
            try:
                if topic.partitions <= _STEPS:
                    size, records = self._look(topic, range(topic.partitions), rows)
                else:
                    size, records = await self._look_in_turns(topic, samples, rows)
            except UnknownPartition:
                continue
            if shown:
                of_topics.add((topic.name,), *_counts(counted), size, records)
            else:
                other_bytes += size
                other_records += records
            if steps >= _STEPS:
                steps = 0
                await samples.turns.next()
        selection.done()
        samples.add(TOPICS, len(topics))
        samples.add(PARTITIONS, partitions)
        await self._topic_table.fill(samples, of_topics)
        await self._partition_table.fill(samples, of_partitions)
        if selection.has_other:
            for name, total in (await selection.totals(samples.turns)).items():
                samples.add(TRAFFIC[name], total, OTHER)
            samples.add(TOPIC_BYTES, other_bytes, OTHER)
            samples.add(TOPIC_RECORDS, other_records, OTHER)
        return {"topics": selection.summed, "partitions": hidden}

    async def _look_in_turns(self, topic: Topic, samples: Samples, by_name: Rows | None) -> tuple[int, int]:
        """The same as `_look` for all partitions of a topic that has many."""
        total = records = 0
        for first in range(0, topic.partitions, _STEPS):
            indices = range(first, min(first + _STEPS, topic.partitions))
            more, more_records = self._look(topic, indices, by_name)
            total += more
            records += more_records
            await samples.turns.next()
        return total, records

    def _look(self, topic: Topic, indices: range, by_name: Rows | None) -> tuple[int, int]:
        """The bytes and records of some partitions, which get rows if they are shown by name."""
        extent = self._broker.extent
        total = records = 0
        for index in indices:
            size, bounds = extent(topic.partition(index))
            total += size
            records += bounds.end - bounds.start
            if by_name is not None:
                by_name.add((topic.name, str(index)), size, bounds.start, bounds.end)
        return total, records
