"""All parts together, by themselves: what was committed ends in segments, and nothing else is left."""

import asyncio
from collections.abc import Awaitable, Callable

from posthouse.model.clock import SystemClock
from posthouse.model.scopes import HOUSEKEEPING
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.retention import nothing_elsewhere, nothing_needed
from posthouse.storage.shared.database import LeaseLost
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.garbage import GarbageSettings
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.log_upkeep import LogUpkeep
from posthouse.storage.shared.housekeeping.slots import SlotSettings
from posthouse.storage.shared.housekeeping.upkeep import Upkeep, UpkeepSettings
from tests.storage.shared.partition_view import View
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import fill
from tests.storage.shared.test_segment_compaction import Effects

OFTEN = UpkeepSettings(
    consolidation=ConsolidationSettings(due_bytes=0),
    slots=SlotSettings(open_seconds=0),
    garbage=GarbageSettings(grace_seconds=0),
    consolidation_seconds=0.05,
    merging_seconds=0.05,
    slot_seconds=0.05,
    removal_seconds=0.05,
    garbage_seconds=0.05,
)


def upkeep(logs: SharedLogs, lost: list[LeaseLost], metrics: HousekeepingMetrics) -> Upkeep:
    return Upkeep(
        logs.database,
        logs.objects,
        logs.lease,
        on_lease_lost=lost.append,
        clock=SystemClock(),
        metrics=metrics,
        settings=OFTEN,
    )


async def log_upkeep(logs: SharedLogs, lost: list[LeaseLost], metrics: HousekeepingMetrics) -> LogUpkeep:
    """Of all logs."""
    view = View(logs)
    await view.refresh()
    made = LogUpkeep(
        logs.database,
        logs.objects,
        logs.names,
        logs.lease,
        view,
        commit=view.commit,
        barrier=view.refresh_definitions,
        effects=Effects(),
        on_lease_lost=lost.append,
        clock=SystemClock(),
        metrics=metrics,
        storage_metrics=StorageMetrics(),
        settings=OFTEN,
    )
    for scope in HOUSEKEEPING:
        await made.take(scope)
    return made


async def until(is_true: Callable[[], Awaitable[bool]]) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while not await is_true():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)


async def test_everything_settles(logs: SharedLogs) -> None:
    [log] = await logs.create(retention_ms="-1")
    [gone] = await logs.create("gone")
    await fill(logs, log)
    await fill(logs, gone, 3)
    before = await logs.read(log)
    await logs.connection.execute("UPDATE topic SET deleted_at = now() WHERE name = 'gone'")
    lost: list[LeaseLost] = []
    metrics = HousekeepingMetrics()
    of_all, work = upkeep(logs, lost, metrics), await log_upkeep(logs, lost, metrics)
    of_all.start()
    work.start()

    async def is_settled() -> bool:
        found = await logs.one(
            "SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM topic), (SELECT count(*) FROM object)"
        )
        return found == (0, 1, 1)

    await until(is_settled)
    assert await work.enforce_retention(nothing_elsewhere, nothing_needed) == {}
    await work.compact(nothing_needed)
    assert await logs.read(log) == before
    assert len(logs.objects.stored) == 1
    assert metrics.consolidated_runs == 10

    await logs.take_lease()
    await fill(logs, log, 1)

    async def is_lost() -> bool:
        return len(lost) == 2

    await until(is_lost)
    await work.stop()
    await of_all.stop()
    await logs.check()
