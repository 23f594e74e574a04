"""Queues that one client of a group consumes in order: it locks them in the broker, and renews the lock."""

from collections.abc import Callable, Iterable
from typing import Final

from posthouse.protocols.rocketmq.codec.bodies import MessageQueue

LOCK_SECONDS: Final = 60.0
"""Clients renew a lock every 20 s."""


class QueueLocks:
    """Owned by the event loop. In memory: after a restart clients lock again, as upstream."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._groups: dict[str, dict[MessageQueue, tuple[str, float]]] = {}
        """Client, and when its lock ends."""

    def lock(self, group: str, client: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Those that the client holds now."""
        now = self._monotonic()
        held = self._groups.setdefault(group, {})
        taken = []
        for queue in queues:
            holder, until = held.get(queue, (client, 0.0))
            if holder == client or until <= now:
                held[queue] = client, now + LOCK_SECONDS
                taken.append(queue)
        if not held:
            del self._groups[group]
        return taken

    def unlock(self, group: str, client: str, queues: Iterable[MessageQueue]) -> None:
        held = self._groups.get(group, {})
        for queue in queues:
            if queue in held and held[queue][0] == client:
                del held[queue]
        if not held:
            self._groups.pop(group, None)

    def forget_expired(self) -> None:
        """To be called now and then: clients may go without unlocking."""
        now = self._monotonic()
        for group, held in list(self._groups.items()):
            for queue, (_, until) in list(held.items()):
                if until <= now:
                    del held[queue]
            if not held:
                del self._groups[group]
