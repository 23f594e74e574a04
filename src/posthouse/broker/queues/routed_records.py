"""Records that the broker itself writes to partitions, with references for the queues that their topics feed:
delayed ones that are due, and half messages that are committed.
"""

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
from posthouse.broker.topics import Topics
from posthouse.records.header_section import decode_section


class RoutedRecords:
    """Of one wave: its records for one partition share a batch."""

    def __init__(self, topics: Topics, sources: Sources) -> None:
        self._topics = topics
        self._sources = sources
        self._backing: dict[tuple[str, int], BackingTopic] = {}

    def add(
        self, name: str, partition: int, key: bytes | None, value: bytes, headers: bytes, wave: Wave
    ) -> None:
        """The topic may have changed since the record came. Raises UnknownTopic, RecordTooLarge, MissingKeys
        and CorruptBatch."""
        topic = self._topics.get(name)
        check_record(topic, key, value, headers)
        backing = self._backing.get((name, partition))
        if backing is None:
            backing = self._backing[name, partition] = BackingTopic(name, {}, partition)
        wave.add(backing, self.queues(name, key, headers), key, value, Envelope(headers=headers))

    def queues(self, name: str, key: bytes | None, headers: bytes) -> tuple[LogQueue, ...]:
        """The queues that get a record of the topic."""
        source = self._sources.by_topic.get(name)
        return () if source is None else _routed(source, key, headers)


def _routed(source: Source, key: bytes | None, encoded: bytes) -> tuple[LogQueue, ...]:
    """The queues that would get the record if it was produced now."""
    target = source.target
    if not isinstance(target, Exchange):
        return (target,)
    if target.route_of_all is not None:
        return target.route_of_all
    headers = decode_section(encoded)
    named = [value or b"" for name, value in headers if name == ROUTING_KEY]

    def attributes() -> Mapping[str, object]:
        return {name.decode(errors="replace"): as_text(value) for name, value in headers}

    return source.router.route(target, named[0] if named else key or b"", attributes)
