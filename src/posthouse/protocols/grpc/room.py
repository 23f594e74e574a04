"""Room for large messages of one connection.

A stream's window is enough for small messages. A larger one gets the rest of its length at once, if there is
room: that keeps memory bounded while many streams send large messages, and always lets one of them go on.
"""

from collections.abc import Callable, Hashable


class Room:
    __slots__ = ("_limit", "_taken", "_used", "_waiting")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._taken: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, tuple[int, Callable[[], None]]] = {}

    @property
    def is_awaited(self) -> bool:
        return bool(self._waiting)

    def ask(self, owner: Hashable, size: int, granted: Callable[[], None]) -> None:
        """`granted` is called once, now or later, unless the owner leaves before. A single message may be
        larger than the limit."""
        self._waiting[owner] = (size, granted)
        self._grant()

    def leave(self, owner: Hashable) -> None:
        """Whatever the owner has, or waits for."""
        self._waiting.pop(owner, None)
        self._used -= self._taken.pop(owner, 0)
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            owner = next(iter(self._waiting))
            size, granted = self._waiting[owner]
            if self._used and self._used + size > self._limit:
                return
            del self._waiting[owner]
            self._used += size
            self._taken[owner] = self._taken.get(owner, 0) + size
            granted()
