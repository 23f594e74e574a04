"""Order by key: at most one message of each key is in flight."""

from collections import deque
from collections.abc import Sequence

from posthouse.broker.queues.message import Message

CROWD = 1000
"""When this many messages wait for others of their key, no more are loaded until some are settled."""


class KeyOrder:
    def __init__(self) -> None:
        self._held: dict[bytes, Message] = {}
        self._waiting: dict[bytes, deque[Message]] = {}
        self._count = 0

    @property
    def is_crowded(self) -> bool:
        return self._count >= CROWD

    def admit(self, messages: Sequence[Message]) -> list[Message]:
        """The messages that may be delivered now; the others wait. Messages without a key never wait."""
        admitted = []
        for message in messages:
            key = message.key
            if not key or self._held.setdefault(key, message) is message:
                admitted.append(message)
            else:
                message.lane.park(message)
                self._waiting.setdefault(key, deque()).append(message)
                self._count += 1
        return admitted

    def free(self, message: Message) -> None:
        """The message is settled or requeued: those that waited for it are ready again, in their order."""
        key = message.key
        if not key or self._held.get(key) is not message:
            return
        del self._held[key]
        self._free_waiting(key)

    def free_all(self) -> None:
        """All messages that wait are ready again; `admit` decides anew."""
        for key in list(self._waiting):
            self._free_waiting(key)

    def _free_waiting(self, key: bytes) -> None:
        for waiting in self._waiting.pop(key, ()):
            self._count -= 1
            waiting.lane.reloaded(waiting)
