"""Shared storages for tests, on a real database."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from posthouse.model.clock import Clock
from posthouse.storage.shared.commits.last_commits import LastCommits
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.objects.store import ObjectStore
from tests.postgres import MIGRATED, PostgresServer, new_database


@dataclass(slots=True)
class TestLease:
    incarnation: UUID = field(default_factory=uuid4)
    epoch: int = 1
    is_lost: bool = False
    on_fenced: Callable[[], None] = lambda: None

    def count_commits(self, acknowledged: Callable[[], int]) -> None:
        return

    def fenced(self, why: str) -> None:
        self.is_lost = True
        self.on_fenced()

    __test__ = False


async def take_lease(database: Database, incarnation: UUID | None = None) -> TestLease:
    """By force: whoever held it is fenced."""
    lease = TestLease(incarnation=incarnation or uuid4())
    connection = await database.connect("tests")
    try:
        found = await connection.execute(
            "UPDATE scope SET holder = %s, epoch = epoch + 1 RETURNING epoch",
            [lease.incarnation],
        )
        row = await found.fetchone()
        assert row is not None
        lease.epoch = row[0]
        await connection.execute(
            "INSERT INTO cluster (id, secret) VALUES ('test-cluster', 'secret') ON CONFLICT DO NOTHING"
        )
    finally:
        await connection.close()
    return lease


class PlainBlocks:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def read(
        self, key: str, object_size: int, start: int, size: int, ahead: int = 0
    ) -> bytes | memoryview:
        return await self._store.read(key, start, size)

    def expect(self, key: str, object_size: int, start: int, size: int) -> None:
        """No-op: without a cache there is no place for bytes that are not asked for yet."""


def make_member(
    database: Database,
    objects: ObjectStore,
    clock: Clock,
    *,
    tail_bytes: int = 2**20,
    inline_bytes: int = 2**19,
    member: TestLease | None = None,
    last_commits: LastCommits | None = None,
) -> SharedStorage:
    """Of a broker without the lease. There must have been one with it."""
    return SharedStorage(
        database,
        objects,
        PlainBlocks(objects),
        None,
        member=member or TestLease(),
        clock=clock,
        tail_bytes=tail_bytes,
        inline_bytes=inline_bytes,
        last_commits=last_commits,
    )


async def make_shared(
    database: Database,
    objects: ObjectStore,
    clock: Clock,
    *,
    tail_bytes: int = 2**20,
    inline_bytes: int = 2**19,
    on_fenced: Callable[[], None] = lambda: None,
    incarnation: UUID | None = None,
    upkeep: UpkeepSettings | None = None,
) -> SharedStorage:
    lease = await take_lease(database, incarnation)
    lease.on_fenced = on_fenced
    return SharedStorage(
        database,
        objects,
        PlainBlocks(objects),
        lease,
        clock=clock,
        tail_bytes=tail_bytes,
        inline_bytes=inline_bytes,
        upkeep=upkeep,
    )


@asynccontextmanager
async def shared_storage(
    server: PostgresServer, clock: Clock, *, is_tiny: bool = False
) -> AsyncIterator[SharedStorage]:
    """Open and empty. A tiny one keeps no tail in memory and uploads all but the smallest groups."""
    with new_database(server, MIGRATED) as url:
        tail_bytes, inline_bytes = (0, 200) if is_tiny else (2**20, 2**19)
        made = await make_shared(
            Database(url),
            MemoryObjectStore(clock),
            clock,
            tail_bytes=tail_bytes,
            inline_bytes=inline_bytes,
        )
        await made.open()
        yield made
        await made.close()
