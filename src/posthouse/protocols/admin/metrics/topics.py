"""Topics and partitions: traffic, and what their logs hold."""

from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.traffic import TopicTraffic
from posthouse.model.errors import UnknownPartition
from posthouse.model.topics import Topic
from posthouse.protocols.admin.metrics.family import counter, gauge
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.admin.metrics.selection import OTHER, Selection

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
_AT_ONCE: Final = 100
"""Partitions of one topic that are looked at before others may have their turn."""
FAMILIES: Final = (TOPICS, PARTITIONS, *TRAFFIC.values(), TOPIC_BYTES, TOPIC_RECORDS, BYTES, START, END)


class TopicMetrics:
    def __init__(self, broker: Broker, limit: int) -> None:
        self._broker = broker
        self._limit = limit
        self._selection = Selection(limit, tuple(TRAFFIC))

    async def collect(self, samples: Samples) -> dict[str, int]:
        """How many of each kind of objects were not shown by name."""
        selection, traffic = self._selection, self._broker.traffic
        topics = list(self._broker.topics)
        partitions = hidden = 0
        other_bytes = other_records = 0
        for topic in topics:
            if self._broker.topics.find(topic.name) is None:
                continue  # it was deleted meanwhile
            counted = traffic.of(topic.name)
            shown = selection.shows(topic.name, counted)
            by_name = shown and partitions - hidden + topic.partitions <= self._limit
            partitions += topic.partitions
            if not by_name:
                hidden += topic.partitions
            try:
                size, records = await self._partitions(topic, samples, by_name=by_name)
            except UnknownPartition:
                continue
            if shown:
                self._add(samples, topic.name, counted, size, records)
            else:
                other_bytes += size
                other_records += records
            await samples.turns.next()
        selection.done()
        samples.add(TOPICS, len(topics))
        samples.add(PARTITIONS, partitions)
        if selection.has_other:
            for name, total in selection.totals():
                samples.add(TRAFFIC[name], total, OTHER)
                await samples.turns.next()
            samples.add(TOPIC_BYTES, other_bytes, OTHER)
            samples.add(TOPIC_RECORDS, other_records, OTHER)
        return {"topics": selection.summed, "partitions": hidden}

    async def _partitions(self, topic: Topic, samples: Samples, *, by_name: bool) -> tuple[int, int]:
        """The bytes and records of all of them."""
        broker = self._broker
        total = records = 0
        for index in range(topic.partitions):
            size, bounds = broker.size(topic, index), broker.bounds(topic, index)
            total += size
            records += bounds.end - bounds.start
            if by_name:
                labels = topic.name, str(index)
                samples.add(BYTES, size, *labels)
                samples.add(START, bounds.start, *labels)
                samples.add(END, bounds.end, *labels)
            if index % _AT_ONCE == _AT_ONCE - 1:
                await samples.turns.next()
        return total, records

    def _add(self, samples: Samples, name: str, counted: TopicTraffic, size: int, records: int) -> None:
        samples.add(TRAFFIC["records_in"], counted.records_in, name)
        samples.add(TRAFFIC["bytes_in"], counted.bytes_in, name)
        samples.add(TRAFFIC["records_out"], counted.records_out, name)
        samples.add(TRAFFIC["bytes_out"], counted.bytes_out, name)
        samples.add(TOPIC_BYTES, size, name)
        samples.add(TOPIC_RECORDS, records, name)
