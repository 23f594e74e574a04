"""All housekeeping of the shared storage, put together for the coordinator."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from posthouse.model.clock import Clock
from posthouse.model.ids import PartitionId
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome
from posthouse.storage.retention import KeptElsewhere, Needed
from posthouse.storage.shared.database import Database, LeaseLost
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.compaction.compaction import Compaction, CompactionSettings
from posthouse.storage.shared.housekeeping.compaction.swap import CompactionEffects, CompactionSwap
from posthouse.storage.shared.housekeeping.consolidation.consolidation import (
    Consolidation,
    ConsolidationSettings,
)
from posthouse.storage.shared.housekeeping.fresh_view import FreshView
from posthouse.storage.shared.housekeeping.garbage import Garbage, GarbageSettings
from posthouse.storage.shared.housekeeping.housekeeping import Housekeeping, HousekeepingPart
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.merging.merging import Merging, MergingSettings
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.housekeeping.removal import Removal
from posthouse.storage.shared.housekeeping.retention import Retention
from posthouse.storage.shared.housekeeping.slots import Slots, SlotSettings
from posthouse.storage.shared.objects.names import ObjectNames

_STATEMENT_SECONDS = 60.0
"""Some queries look at all runs or all segments; none of them holds a lock meanwhile."""
_PRODUCER_EXPIRY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSettings:
    consolidation: ConsolidationSettings = field(default_factory=ConsolidationSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    merging: MergingSettings = field(default_factory=MergingSettings)
    slots: SlotSettings = field(default_factory=SlotSettings)
    garbage: GarbageSettings = field(default_factory=GarbageSettings)
    producer_expiry_ms: int = _PRODUCER_EXPIRY_MS
    consolidation_seconds: float = 15.0
    merging_seconds: float = 60.0
    slot_seconds: float = 15.0
    removal_seconds: float = 30.0
    garbage_seconds: float = 300.0


class Upkeep:
    def __init__(
        self,
        database: Database,
        objects: HousekeptObjects,
        names: ObjectNames,
        lease: HeldLease,
        view: FreshView,
        *,
        commit: Callable[[Sequence[Operation]], asyncio.Future[list[Outcome]]],
        effects: CompactionEffects,
        on_lease_lost: Callable[[LeaseLost], None],
        clock: Clock,
        storage_metrics: StorageMetrics,
        settings: UpkeepSettings | None = None,
    ) -> None:
        """`commit` is that of the storage."""
        chosen = settings or UpkeepSettings()
        connect = partial(database.connect, "housekeeping", statement_seconds=_STATEMENT_SECONDS)
        self.metrics = HousekeepingMetrics()
        consolidation = Consolidation(
            connect, objects, names, lease, lambda: view.topics, clock, self.metrics, chosen.consolidation
        )
        merging = Merging(connect, objects, names, lease, lambda: view.topics, self.metrics, chosen.merging)
        slots = Slots(connect, lease, self.metrics, chosen.slots)
        removal = Removal(connect, lease, self.metrics)
        garbage = Garbage(connect, objects, lease, self.metrics, chosen.garbage)
        self._retention = Retention(
            connect,
            lease,
            view,
            commit,
            clock,
            storage_metrics,
            producer_expiry_ms=chosen.producer_expiry_ms,
        )
        swap = CompactionSwap(objects, names, lease, effects)
        self._compaction = Compaction(
            connect, objects, swap, consolidation, view, clock, storage_metrics, chosen.compaction
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
                HousekeepingPart(name="slots", run_once=slots.run_once, seconds=chosen.slot_seconds),
                HousekeepingPart(
                    name="removal of what is deleted",
                    run_once=removal.run_once,
                    seconds=chosen.removal_seconds,
                ),
                HousekeepingPart(
                    name="garbage collection", run_once=garbage.run_once, seconds=chosen.garbage_seconds
                ),
            ],
            clock,
            on_lease_lost,
        )

    def start(self) -> None:
        self._housekeeping.start()

    async def stop(self) -> None:
        await self._housekeeping.stop()

    async def enforce_retention(self, archived: KeptElsewhere, needed: Needed) -> dict[PartitionId, int]:
        return await self._retention.enforce(archived, needed)

    async def compact(self, needed: Needed) -> None:
        await self._compaction.run_once(needed)
