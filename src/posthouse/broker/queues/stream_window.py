"""Messages that readers of streams have in memory, ahead of their consumers' credit."""

from collections import deque
from collections.abc import Sequence

from posthouse.broker.queues.message import Message

WINDOW = 500
"""The most messages of one reader."""
WINDOW_BYTES = 512 * 1024
MEMORY = 64 * 1024 * 1024
"""Beyond this many bytes of all readers together, none reads ahead: there may be very many readers."""
_MESSAGE_BYTES = 400
"""What a message takes besides its body, roughly."""


class StreamMemory:
    """Shared by all readers of a broker. Owned by the event loop."""

    def __init__(self) -> None:
        self.held = 0

    @property
    def is_short(self) -> bool:
        return self.held > MEMORY


class StreamWindow:
    """Of one reader."""

    def __init__(self, memory: StreamMemory) -> None:
        self._memory = memory
        self._messages: deque[Message] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_low(self) -> bool:
        return len(self._messages) < WINDOW // 2 and self._size < WINDOW_BYTES // 2

    def room(self, credit: int) -> int:
        """How many more messages may be read."""
        if self._size >= WINDOW_BYTES:
            return 0
        return min(credit if self._memory.is_short else WINDOW, WINDOW) - len(self._messages)

    def extend(self, messages: Sequence[Message]) -> None:
        self._messages.extend(messages)
        self._count(messages, 1)

    def take(self, most: int) -> list[Message]:
        taken = [self._messages.popleft() for _ in range(min(most, len(self._messages)))]
        self._count(taken, -1)
        return taken

    def clear(self) -> int | None:
        """Drop all messages; returns the position of the first."""
        if not self._messages:
            return None
        first = self._messages[0].position
        self._count(self._messages, -1)
        self._messages.clear()
        return first

    def _count(self, messages: Sequence[Message], sign: int) -> None:
        size = sum(message.size for message in messages)
        self._size += sign * size
        self._memory.held += sign * (size + len(messages) * _MESSAGE_BYTES)
