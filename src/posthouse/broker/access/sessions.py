"""Connections by user: limits connections per user, and closes those of a removed user."""

from collections.abc import Callable

from posthouse.model.errors import LoginFailed

Leave = Callable[[], None]


class Sessions:
    """Owned by the event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_user: dict[str, dict[int, Leave]] = {}
        self._last = 0

    def enter(self, user: str, leave: Leave) -> int:
        """Count a connection; returns its number for `exit`. `leave` is called when the user must be
        disconnected."""
        sessions = self._by_user.setdefault(user, {})
        if self._limit and len(sessions) >= self._limit:
            raise LoginFailed(f"{user!r} has {self._limit} connections, the limit (max_connections_per_user)")
        self._last += 1
        sessions[self._last] = leave
        return self._last

    def exit(self, user: str, number: int) -> None:
        sessions = self._by_user.get(user, {})
        sessions.pop(number, None)
        if not sessions:
            self._by_user.pop(user, None)

    def disconnect(self, user: str) -> None:
        for leave in list(self._by_user.get(user, {}).values()):
            leave()

    def count(self, user: str) -> int:
        return len(self._by_user.get(user, {}))
