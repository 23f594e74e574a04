"""Delayed records: for a partition of a topic, at a time. Until then the schedule has them."""

from collections.abc import Callable

from posthouse.broker.queues.publishing import Publishing
from posthouse.broker.record_limits import check_record
from posthouse.broker.schedule.entry import Scheduled
from posthouse.model.errors import PosthouseError
from posthouse.model.scopes import DEFAULT_NAMESPACE
from posthouse.model.topics import Topic


class DelayedRecords:
    """Owned by the event loop."""

    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing

    def add(
        self,
        topic: Topic,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: bytes,
        due_ms: int,
        stored: Callable[[PosthouseError | None], None],
    ) -> None:
        """`stored` is told when the record is durable in the schedule, or why it is not. Raises
        UnknownPartition, RecordTooLarge, MissingKeys and InvalidTimestamp."""
        topic.existing_partition(partition)
        check_record(topic, key, value, headers)
        entry = Scheduled(
            due_ms=due_ms,
            namespace=DEFAULT_NAMESPACE,
            exchange=topic.name,
            key=key or b"",
            has_key=key is not None,
            value=value,
            headers=headers,
            partition=partition,
        )
        wave = self._publishing.wave
        wave.schedule(entry)
        wave.on_end(stored)
