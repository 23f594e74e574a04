"""What the coordinator alone does for the shared storage: slots, removal of rows, garbage collection.

All of it looks at all logs together: a slot has runs of any log, an object segments of any. Housekeeping of
single logs is in `log_upkeep`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from posthouse.model.clock import Clock
from posthouse.storage.shared.database import Database, LeaseLost
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.compaction.compaction import CompactionSettings
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.garbage import Garbage, GarbageSettings
from posthouse.storage.shared.housekeeping.housekeeping import Housekeeping, HousekeepingPart
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.merging.merging import MergingSettings
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.housekeeping.removal import Removal
from posthouse.storage.shared.housekeeping.slots import Slots, SlotSettings

STATEMENT_SECONDS = 60.0
"""Some queries look at all runs or all segments; none of them holds a lock meanwhile."""
PRODUCER_EXPIRY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSettings:
    consolidation: ConsolidationSettings = field(default_factory=ConsolidationSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    merging: MergingSettings = field(default_factory=MergingSettings)
    slots: SlotSettings = field(default_factory=SlotSettings)
    garbage: GarbageSettings = field(default_factory=GarbageSettings)
    producer_expiry_ms: int = PRODUCER_EXPIRY_MS
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
        lease: HeldLease,
        *,
        on_lease_lost: Callable[[LeaseLost], None],
        clock: Clock,
        metrics: HousekeepingMetrics,
        settings: UpkeepSettings | None = None,
    ) -> None:
        chosen = settings or UpkeepSettings()
        connect = partial(database.connect, "housekeeping", statement_seconds=STATEMENT_SECONDS)
        slots = Slots(connect, lease, metrics, chosen.slots)
        removal = Removal(connect, lease, metrics)
        garbage = Garbage(connect, objects, lease, metrics, chosen.garbage)
        self._housekeeping = Housekeeping(
            [
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
