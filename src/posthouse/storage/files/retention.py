"""Retention: removes expired records of partitions, except those that consumers or queues still need."""

import asyncio
from collections.abc import Callable, Sequence

from posthouse.model.clock import Clock
from posthouse.model.ids import PartitionId
from posthouse.storage.files.segments.logs import Logs
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Operation, Trim
from posthouse.storage.outcomes import Outcome
from posthouse.storage.retention import KeptElsewhere, Needed

_LOGS_PER_TURN = 500
"""Partitions per iteration of the event loop."""


class Retention:
    """Owned by the event loop."""

    def __init__(
        self,
        clock: Clock,
        logs: Logs,
        commit: Callable[[Sequence[Operation]], asyncio.Future[list[Outcome]]],
        metrics: StorageMetrics,
        *,
        producer_expiry_ms: int,
    ) -> None:
        self._clock = clock
        self._logs = logs
        self._commit = commit
        self._metrics = metrics
        self._producer_expiry_ms = producer_expiry_ms

    async def enforce(self, archived: KeptElsewhere, needed: Needed) -> dict[PartitionId, int]:
        """See `Storage.enforce_retention`."""
        now = self._clock.now_ms()
        held_back: dict[PartitionId, int] = {}
        logs = list(self._logs.values())
        for first in range(0, len(logs), _LOGS_PER_TURN):
            trims: list[Operation] = []
            for owner in filter(self._logs.has, logs[first : first + _LOGS_PER_TURN]):
                owner.producers.expire(now - self._producer_expiry_ms)
                start = wanted = owner.expired_before(now, archived(owner.id))
                if wanted > owner.start and (lowest := needed(owner.id)) is not None:
                    start = min(wanted, owner.whole_segments_before(lowest))
                if start < wanted:
                    held_back[owner.id] = wanted
                if start > owner.start:
                    trims.append(Trim(owner.id, start))
                    self._metrics.retention_records += start - owner.start
            if trims:  # in the same iteration: later a queue might need the records
                await self._commit(trims)
            else:
                await asyncio.sleep(0)
        self._metrics.retention_runs += 1
        return held_back
