"""Admission of messages to queues with a length limit."""

from collections.abc import Sequence

from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.publishing import Wave
from posthouse.broker.queues.queue import Queue
from posthouse.model.errors import QueueBlocked


class Admission:
    """Of one namespace."""

    def __init__(self) -> None:
        self.limited: set[Queue] = set()
        """Queues with a limit. Most namespaces have none: then every message is admitted."""

    def add(self, queue: LogQueue) -> None:
        if isinstance(queue, Queue) and queue.definition.is_limited:
            self.limited.add(queue)

    def remove(self, queue: LogQueue) -> None:
        if isinstance(queue, Queue):
            self.limited.discard(queue)

    def refusing(self, queues: Sequence[LogQueue], size: int, wave: Wave, *, waits: bool) -> list[Queue]:
        """The queues that refuse one more message of `size` bytes; the others expect it with `wave`.

        Raises QueueBlocked, before anything has happened, where a publisher that `waits` is to wait.
        """
        limited = [queue for queue in queues if isinstance(queue, Queue) and queue in self.limited]
        refusing: list[Queue] = []
        for queue in limited:
            policy = queue.definition.overflow
            if policy is not OverflowPolicy.DROP_HEAD and not queue.room.is_there_for(size):
                if policy is not OverflowPolicy.BLOCK:
                    refusing.append(queue)
                elif waits:
                    raise QueueBlocked(queue)
        for queue in limited:
            if queue not in refusing:
                wave.expect(queue.room, size)
        return refusing
