"""Housekeeping of a cluster that runs, at once instead of after minutes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from posthouse.model.clock import SystemClock
from posthouse.model.scopes import COORDINATOR, Scope, scope_of_log
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.housekeeping.consolidation.consolidation import (
    Consolidation,
    ConsolidationSettings,
)
from posthouse.storage.shared.housekeeping.garbage import Garbage, GarbageSettings
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.kept_logs import KeptLogs
from posthouse.storage.shared.housekeeping.removal import Removal
from posthouse.storage.shared.logs.loading import load
from posthouse.storage.shared.objects.measured import MeasuredObjectStore, ObjectStoreMetrics
from posthouse.storage.shared.objects.names import ObjectNames
from posthouse.storage.shared.objects.opening import open_object_store
from posthouse.storage.shared.objects.store import ObjectStore

_DEADLINE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _HeldLease:
    """In the name of the broker that holds it."""

    incarnation: UUID
    epoch: int
    is_lost: bool = False

    def count_commits(self, acknowledged: Callable[[], int]) -> None:
        raise AssertionError("nothing is committed by a storage here")

    def holds(self, scope: Scope) -> bool:
        return True

    def fenced(self, why: str) -> None:
        raise AssertionError(why)


def consolidate(
    url: str,
    objects: str,
    *,
    segment_bytes: int = 32 * 1024 * 1024,
    metrics: ObjectStoreMetrics | None = None,
) -> None:
    """All that was written so far goes into segments. `metrics` count the calls of the object store."""
    work = partial(_consolidate, segment_bytes=segment_bytes)
    asyncio.run(_with(url, objects, work, metrics or ObjectStoreMetrics()))


def collect_garbage(url: str, objects: str) -> None:
    """Without a grace: objects that nothing uses and no hold has are deleted."""
    asyncio.run(_with(url, objects, _collect, ObjectStoreMetrics()))


def remove(url: str, objects: str) -> None:
    """Segments below the start of their log, and deleted topics."""
    asyncio.run(_with(url, objects, _remove, ObjectStoreMetrics()))


async def _with(
    url: str,
    objects: str,
    work: Callable[[Database, ObjectStore, _HeldLease], Awaitable[None]],
    metrics: ObjectStoreMetrics,
) -> None:
    """`work` is done in the name of the coordinator."""
    database = Database(url)
    store = MeasuredObjectStore(open_object_store(objects, timeout=30), metrics)
    try:
        await work(database, store, (await _holders(database))[COORDINATOR])
    finally:
        await store.close()


async def _holders(database: Database) -> dict[Scope, _HeldLease]:
    async with await database.connect("tests") as connection:
        found = await connection.execute(
            "SELECT name, holder, lease.epoch FROM lease JOIN scope USING (holder)"
        )
        return {Scope(name): _HeldLease(holder, epoch) for name, holder, epoch in await found.fetchall()}


async def _consolidate(
    database: Database, store: ObjectStore, lease: _HeldLease, *, segment_bytes: int
) -> None:
    """In the name of the holders of the scopes. A scope may go to another broker meanwhile, so it is done
    again until nothing is left."""
    async with await database.connect("tests") as connection:
        loaded = await load(connection, TopicConfig(), coordinates=False, has_all=False)
    logs = [each.id for each in loaded.logs]
    async with asyncio.timeout(_DEADLINE_SECONDS):
        while await _has_runs(database, logs):
            holders = await _holders(database)
            for holder in set(holders.values()):
                consolidation = Consolidation(
                    partial(database.connect, "tests"),
                    store,
                    ObjectNames(holder.incarnation),
                    holder,
                    KeptLogs(holder),
                    lambda: loaded.topics,
                    SystemClock(),
                    HousekeepingMetrics(),
                    ConsolidationSettings(segment_bytes=segment_bytes),
                )
                await consolidation.consolidate(
                    [each for each in logs if holders.get(scope_of_log(each)) == holder]
                )


async def _has_runs(database: Database, logs: Sequence[int]) -> bool:
    async with await database.connect("tests") as connection:
        found = await connection.execute(
            "SELECT FROM log JOIN run ON run.log = log.id "
            "WHERE log.id = ANY (%s) AND base >= segments_to LIMIT 1",
            [list(logs)],
        )
        return await found.fetchone() is not None


async def _remove(database: Database, store: ObjectStore, lease: _HeldLease) -> None:
    await Removal(partial(database.connect, "tests"), lease, HousekeepingMetrics()).run_once()


async def _collect(database: Database, store: ObjectStore, lease: _HeldLease) -> None:
    connect = partial(database.connect, "tests")
    await Garbage(connect, store, lease, HousekeepingMetrics(), GarbageSettings(grace_seconds=0)).run_once()
