"""Queues that one client of a group consumes in order: it locks them in the broker, and renews the lock."""

from collections.abc import Callable, Iterable
from typing import Final

from posthouse.protocols.rocketmq.codec.bodies import MessageQueue

LOCK_SECONDS: Final = 60.0
"""Clients renew a lock every 20 s."""
MOST_LOCKS: Final = 100_000
"""Of all groups, which takes 40 MB: clients may invent the names of groups and queues."""


class QueueLocks:
    """Owned by the event loop. In memory: after a restart clients lock again, as upstream."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._groups: dict[str, dict[MessageQueue, tuple[str, float]]] = {}
        """Client, and when its lock ends."""
        self._count = 0

    def lock(self, group: str, client: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Those that the client holds now."""
        now = self._monotonic()
        held = self._groups.setdefault(group, {})
        taken = []
        for queue in queues:
            known = held.get(queue)
            if known is None:
                if self._count >= MOST_LOCKS:
                    continue
                self._count += 1
            elif known[0] != client and known[1] > now:
                continue
            held[queue] = client, now + LOCK_SECONDS
            taken.append(queue)
        if not held:
            del self._groups[group]
        return taken

    def is_used_by(self, group: str) -> bool:
        """Whether the group consumes in order: it holds any lock."""
        now = self._monotonic()
        return any(until > now for _, until in self._groups.get(group, {}).values())

    def unlock(self, group: str, client: str, queues: Iterable[MessageQueue]) -> None:
        held = self._groups.get(group, {})
        for queue in queues:
            if queue in held and held[queue][0] == client:
                del held[queue]
                self._count -= 1
        if not held:
            self._groups.pop(group, None)

    def forget_expired(self) -> None:
        """To be called now and then: clients may go without unlocking."""
        now = self._monotonic()
        for group, held in list(self._groups.items()):
            for queue, (_, until) in list(held.items()):
                if until <= now:
                    del held[queue]
                    self._count -= 1
            if not held:
                del self._groups[group]
