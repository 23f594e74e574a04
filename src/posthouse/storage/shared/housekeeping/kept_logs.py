"""The logs that this broker keeps house for: those of the scopes of housekeeping that it has taken.

Moving bytes (consolidation, merging) needs nothing but the scope. What removes records (retention,
compaction) must know what queues need. So logs that belong to a scope of namespaces are *cleaned* by its
holder, whichever broker keeps house for them.

The database checks every step again and refuses it if the scope has gone to another broker: two brokers that
both believe to hold it do no harm.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from posthouse.model.scopes import HOUSEKEEPING, NAMESPACES, Scope, shard_of_log
from posthouse.model.topics import Topic
from posthouse.storage.shared.held_lease import HeldLease

log = logging.getLogger(__name__)

_STEP_SECONDS = 5.0
"""How long the release of a scope waits for a step. One that takes longer is refused by the database."""


class KeptLogs:
    """Owned by the event loop."""

    def __init__(self, lease: HeldLease, *, step_seconds: float = _STEP_SECONDS) -> None:
        self._lease = lease
        self._step_seconds = step_seconds
        self._shards: set[int] = set()
        self._steps: Counter[int] = Counter()
        """Steps that are under way, by the shards of their logs."""
        self._step_ended = asyncio.Event()

    @property
    def shards(self) -> list[int]:
        return sorted(self._shards)

    @property
    def share(self) -> float:
        """Which part of all logs this broker keeps, of 1."""
        return len(self._shards) / len(HOUSEKEEPING)

    @property
    def namespaces(self) -> list[int]:
        """The numbers of the scopes of namespaces whose logs this broker cleans."""
        return [number for number, scope in enumerate(NAMESPACES) if self._lease.holds(scope)]

    def holds(self, scope: Scope) -> bool:
        return scope.log_shard in self._shards

    def keeps(self, log: int) -> bool:
        """Whether this broker moves the bytes of the log with this number."""
        return shard_of_log(log) in self._shards

    def cleans(self, log: int, topic: Topic) -> bool:
        """Whether this broker removes records of the log, which belongs to the topic."""
        return self.keeps(log) if topic.scope is None else self._lease.holds(topic.scope)

    @contextmanager
    def step(self, logs: Iterable[int]) -> Iterator[None]:
        """The scopes of the logs are not released meanwhile, unless it takes too long."""
        shards = {shard_of_log(each) for each in logs}
        self._steps.update(shards)
        try:
            yield
        finally:
            self._steps.subtract(shards)
            self._step_ended.set()
            self._step_ended = asyncio.Event()

    def take(self, scope: Scope) -> None:
        self._shards.add(_shard(scope))

    async def release(self, scope: Scope) -> None:
        """Begin no step in the scope any more, and wait for those that are under way."""
        shard = _shard(scope)
        self._shards.discard(shard)
        try:
            async with asyncio.timeout(self._step_seconds):
                while self._steps[shard]:
                    await self._step_ended.wait()
        except TimeoutError:
            log.info("%s is released while housekeeping still works on its logs; that will not count", scope)


def _shard(scope: Scope) -> int:
    shard = scope.log_shard
    if shard is None:
        raise ValueError(f"{scope} is not about housekeeping")
    return shard
