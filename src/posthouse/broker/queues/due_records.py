"""Delayed records that are due: to their partition, and to the queues that the topic feeds."""

from collections.abc import Mapping

from posthouse.broker.queues.attributes import as_text
from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.publishing import Wave
from posthouse.broker.queues.record_headers import ROUTING_KEY
from posthouse.broker.queues.sources import Source, Sources
from posthouse.broker.record_limits import check_record
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.topics import Topics
from posthouse.records.header_section import decode_section


class DueRecords:
    """Of one wave: its records for one partition share a batch."""

    def __init__(self, topics: Topics, sources: Sources) -> None:
        self._topics = topics
        self._sources = sources
        self._backing: dict[tuple[str, int], BackingTopic] = {}

    def add(self, entry: Scheduled, wave: Wave) -> None:
        """The topic may have changed. Raises UnknownTopic, RecordTooLarge, MissingKeys and CorruptBatch."""
        assert entry.partition is not None
        topic = self._topics.get(entry.exchange)
        key = entry.key if entry.has_key else None
        check_record(topic, key, entry.value, entry.headers)
        place = topic.name, entry.partition
        backing = self._backing.get(place)
        if backing is None:
            backing = self._backing[place] = BackingTopic(topic.name, {}, entry.partition)
        source = self._sources.by_topic.get(topic.name)
        queues = () if source is None else _routed(source, entry)
        wave.add(backing, queues, key, entry.value, Envelope(headers=entry.headers))


def _routed(source: Source, entry: Scheduled) -> tuple[LogQueue, ...]:
    """The queues that would get the record if it was produced now."""
    target = source.target
    if not isinstance(target, Exchange):
        return (target,)
    if target.route_of_all is not None:
        return target.route_of_all
    headers = decode_section(entry.headers)
    keys = [value or b"" for name, value in headers if name == ROUTING_KEY]

    def attributes() -> Mapping[str, object]:
        return {name.decode(errors="replace"): as_text(value) for name, value in headers}

    return source.router.route(target, keys[0] if keys else entry.key, attributes)
