"""Delayed records: for a partition of a topic, at a time. Until then the schedule has them, and they can be
recalled.
"""

from collections.abc import Callable
from dataclasses import dataclass

from posthouse.broker.queues.publishing import Publishing
from posthouse.broker.record_limits import check_record
from posthouse.broker.schedule.entry import Scheduled
from posthouse.model.errors import PosthouseError
from posthouse.model.scopes import DEFAULT_NAMESPACE
from posthouse.model.topics import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedId:
    """How a delayed record is recalled. No other one has ever the same."""

    due_ms: int
    sequence: int


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
    ) -> DelayedId:
        """`stored` is told later when the record is durable in the schedule, or why it is not. Raises
        UnknownPartition, RecordTooLarge, MissingKeys, InvalidTimestamp and NotCoordinator."""
        topic.existing_partition(partition)
        check_record(topic, key, value, headers)
        sequence = self._publishing.schedules.new_sequence(DEFAULT_NAMESPACE)
        entry = Scheduled(
            due_ms=due_ms,
            namespace=DEFAULT_NAMESPACE,
            exchange=topic.name,
            key=key or b"",
            has_key=key is not None,
            value=value,
            headers=headers,
            partition=partition,
            sequence=sequence,
        )
        wave = self._publishing.wave
        wave.schedule(entry)
        wave.on_end(stored)
        return DelayedId(due_ms=due_ms, sequence=int.from_bytes(sequence, "big"))

    async def recall(self, id: DelayedId) -> None:
        """The record is not published. Durable on return; to recall it again is fine. Raises TooLate if it
        was published, or is about to be, and Unavailable. That there was such a record is not checked."""
        schedules = self._publishing.schedules
        await schedules.recall(DEFAULT_NAMESPACE, id.due_ms, id.sequence.to_bytes(8, "big"))
