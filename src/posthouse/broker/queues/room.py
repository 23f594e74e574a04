"""How much a queue may hold, and who waits until it holds less."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posthouse.broker.queues.queue import Queue


class Room:
    """Of one queue. What is on its way to it counts already: a turn of the event loop may bring very many."""

    def __init__(self, queue: "Queue") -> None:
        self._queue = queue
        self._expected = self._expected_bytes = 0
        self._waiting: list[Callable[[], None]] = []

    def is_there_for(self, size: int) -> bool:
        """Whether one more message of so many bytes may come."""
        queue, definition = self._queue, self._queue.definition
        waiting = queue.waiting_with(self._expected)
        if definition.max_length is not None and waiting >= definition.max_length:
            return False
        if definition.max_bytes is None or not queue.waiting_with(self._expected + 1):
            return True  # somebody would take it at once
        return queue.ready_bytes + self._expected_bytes + size <= definition.max_bytes

    def expect(self, count: int, size: int) -> None:
        """More messages are on their way here; or, below zero, they have come or will not."""
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
