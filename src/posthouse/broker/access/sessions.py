"""Connections by user: limits connections per user, and closes those of a removed user.

The limit holds over all brokers of a cluster, approximately: see `cluster_usage`. A client whose requests one
broker relays to another, or whose connection it has transferred, has one connection, at the first of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from posthouse.broker.cluster_usage import NO_OTHERS, ClusterUsage
from posthouse.model.errors import LoginFailed
from posthouse.model.usage import Limited, Use

Leave = Callable[[], None]


@dataclass(slots=True)
class _UserSessions:
    leaves: dict[int, Leave] = field(default_factory=dict)
    relayed: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        """Those that count."""
        return len(self.leaves) - len(self.relayed)


class Sessions:
    """Owned by the event loop."""

    def __init__(self, limit: int, cluster: ClusterUsage = NO_OTHERS) -> None:
        """A limit of 0 is none."""
        self.limit = limit
        self._cluster = cluster
        self._by_user: dict[str, _UserSessions] = {}
        self._last = 0

    def enter(self, user: str, leave: Leave, *, is_relayed: bool = False) -> int:
        """Count a connection, unless another broker has counted it, and relays its requests or has
        transferred it; returns its number for `exit`. `leave` is called when the user must be
        disconnected."""
        if self.limit and not is_relayed:
            self._check(user)
        sessions = self._by_user.setdefault(user, _UserSessions())
        self._last += 1
        sessions.leaves[self._last] = leave
        if is_relayed:
            sessions.relayed.add(self._last)
        return self._last

    def _check(self, user: str) -> None:
        count = self.count(user)
        if count < self.limit and count + self._cluster.connections(Limited.USER, user) < self.limit:
            return
        raise LoginFailed(f"{user!r} has {self.limit} connections, the limit (max_connections_per_user)")

    def exit(self, user: str, number: int) -> None:
        sessions = self._by_user.get(user)
        if sessions is None:
            return
        sessions.leaves.pop(number, None)
        sessions.relayed.discard(number)
        if not sessions.leaves:
            del self._by_user[user]

    def disconnect(self, user: str) -> None:
        sessions = self._by_user.get(user)
        for leave in [] if sessions is None else list(sessions.leaves.values()):
            leave()

    def count(self, user: str) -> int:
        """Those of clients of this broker."""
        sessions = self._by_user.get(user)
        return 0 if sessions is None else len(sessions)

    def uses(self, least: float) -> Iterator[Use]:
        """The connections of users that have at least that part of the limit here."""
        if not self.limit:
            return
        floor = self.limit * least
        for user, sessions in self._by_user.items():
            count = len(sessions)
            if count and count >= floor:
                yield Use(Limited.USER, user, count, self.limit)
