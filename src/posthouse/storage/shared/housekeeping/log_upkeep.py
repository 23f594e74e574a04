"""Housekeeping of logs: consolidation, merging, retention and compaction, in every broker for its own logs.

The broker calls retention and compaction, because they ask it what is still needed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from posthouse.model.clock import Clock
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import Scope
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome
from posthouse.storage.retention import KeptElsewhere, Needed
from posthouse.storage.shared.database import Database, LeaseLost
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.compaction.compaction import Compaction
from posthouse.storage.shared.housekeeping.compaction.swap import CompactionEffects, CompactionSwap
from posthouse.storage.shared.housekeeping.consolidation.consolidation import Consolidation
from posthouse.storage.shared.housekeeping.fresh_view import FreshView
from posthouse.storage.shared.housekeeping.housekeeping import Housekeeping, HousekeepingPart
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.kept_logs import KeptLogs
from posthouse.storage.shared.housekeeping.merging.merging import Merging
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.housekeeping.retention import Retention
from posthouse.storage.shared.housekeeping.upkeep import STATEMENT_SECONDS, UpkeepSettings
from posthouse.storage.shared.objects.names import ObjectNames


class LogUpkeep:
    """Implements `LogScopes`."""

    def __init__(
        self,
        database: Database,
        objects: HousekeptObjects,
        names: ObjectNames,
        lease: HeldLease,
        view: FreshView,
        *,
        commit: Callable[[Sequence[Operation]], asyncio.Future[list[Outcome]]],
        barrier: Callable[[], Awaitable[None]],
        effects: CompactionEffects,
        on_lease_lost: Callable[[LeaseLost], None],
        clock: Clock,
        metrics: HousekeepingMetrics,
        storage_metrics: StorageMetrics,
        settings: UpkeepSettings | None = None,
    ) -> None:
        """`commit` and `barrier` are those of the storage."""
        chosen = settings or UpkeepSettings()
        connect = partial(database.connect, "housekeeping", statement_seconds=STATEMENT_SECONDS)
        kept = self._kept = KeptLogs(lease)
        self._barrier = barrier
        consolidation = Consolidation(
            connect, objects, names, lease, kept, lambda: view.topics, clock, metrics, chosen.consolidation
        )
        merging = Merging(connect, objects, names, lease, kept, lambda: view.topics, metrics, chosen.merging)
        self._retention = Retention(
            connect,
            lease,
            kept,
            view,
            commit,
            clock,
            storage_metrics,
            producer_expiry_ms=chosen.producer_expiry_ms,
        )
        swap = CompactionSwap(objects, names, lease, effects)
        self._compaction = Compaction(
            connect, objects, swap, consolidation, kept, view, clock, storage_metrics, chosen.compaction
        )
        self._housekeeping = Housekeeping(
            [
                HousekeepingPart(
                    name="consolidation",
                    run_once=consolidation.run_once,
                    seconds=chosen.consolidation_seconds,
                ),
                HousekeepingPart(
                    name="merging of small segments",
                    run_once=merging.run_once,
                    seconds=chosen.merging_seconds,
                ),
            ],
            clock,
            on_lease_lost,
        )

    def start(self) -> None:
        self._housekeeping.start()

    async def stop(self) -> None:
        await self._housekeeping.stop()

    def holds(self, scope: Scope) -> bool:
        return self._kept.holds(scope)

    async def take(self, scope: Scope) -> None:
        self._kept.take(scope)

    async def release(self, scope: Scope) -> None:
        await self._kept.release(scope)
        await self._barrier()  # trims name the scope

    async def enforce_retention(self, archived: KeptElsewhere, needed: Needed) -> dict[PartitionId, int]:
        return await self._retention.enforce(archived, needed)

    async def compact(self, needed: Needed) -> None:
        await self._compaction.run_once(needed)
