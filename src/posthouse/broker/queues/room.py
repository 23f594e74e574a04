"""The length limit of a queue, and the publishers that wait for room."""

from collections.abc import Callable
from typing import Protocol

from posthouse.broker.queues.definition import QueueDefinition


class Backlog(Protocol):
    """What a queue holds, as far as its limits count it."""

    @property
    def ready_bytes(self) -> int: ...

    def waiting_with(self, more: int) -> int:
        """Ready messages and `more`, minus the free credit of the consumers."""


class Room:
    """Of one queue. Messages that are not durable yet count: one turn of the event loop may publish many."""

    def __init__(self, definition: QueueDefinition, backlog: Backlog) -> None:
        self._definition = definition
        self._backlog = backlog
        self._expected = self._expected_bytes = 0
        self._waiting: list[Callable[[], None]] = []

    def is_there_for(self, size: int) -> bool:
        """Whether the queue takes one more message of `size` bytes."""
        backlog, definition = self._backlog, self._definition
        waiting = backlog.waiting_with(self._expected)
        if definition.max_length is not None and waiting >= definition.max_length:
            return False
        if definition.max_bytes is None or not backlog.waiting_with(self._expected + 1):
            return True  # a consumer would take it at once
        return backlog.ready_bytes + self._expected_bytes + size <= definition.max_bytes

    def expect(self, count: int, size: int) -> None:
        """Count messages that are not durable yet; a negative count ends that."""
        self._expected += count
        self._expected_bytes += size
        if count < 0:
            self.tell()

    def wait(self, callback: Callable[[], None]) -> None:
        """Call it once when there is room, or the queue is gone."""
        self._waiting.append(callback)

    def tell(self) -> None:
        if self._waiting and self.is_there_for(1):
            self.tell_all()

    def tell_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
