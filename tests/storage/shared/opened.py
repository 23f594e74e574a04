"""Shared storages for tests, on a real database."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from posthouse.model.clock import Clock
from posthouse.model.scopes import HOUSEKEEPING, SCOPES, Scope
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
    scopes: set[Scope] = field(default_factory=set)
    on_fenced: Callable[[], None] = lambda: None

    def holds(self, scope: Scope) -> bool:
        return scope in self.scopes

    def count_commits(self, acknowledged: Callable[[], int]) -> None:
        return

    def fenced(self, why: str) -> None:
        self.is_lost = True
        self.on_fenced()

    __test__ = False


_HOLDERS = "SELECT DISTINCT holder FROM scope WHERE name = ANY (%s) AND holder IS NOT NULL"
_BEGIN = "SELECT begin_lease(%s, epoch + 1, 3600, false), epoch + 1 FROM last_epoch"
_TAKE = "UPDATE scope SET holder = %s, epoch = epoch + 1 WHERE name = ANY (%s)"
_NAME_CLUSTER = "INSERT INTO cluster (id, secret) VALUES ('test-cluster', 'secret') ON CONFLICT DO NOTHING"


async def take_lease(
    database: Database, incarnation: UUID | None = None, scopes: Collection[Scope] = SCOPES
) -> TestLease:
    """With the scopes, by force: their holders are fenced."""
    lease = TestLease(incarnation=incarnation or uuid4(), scopes=set(scopes))
    names = [scope.name for scope in scopes]
    async with await database.connect("tests") as connection, connection.transaction():
        for [holder] in await (await connection.execute(_HOLDERS, [names])).fetchall():
            await connection.execute("SELECT fence(%s)", [holder])
        await connection.execute("SELECT fence(%s)", [lease.incarnation])
        found = await connection.execute(_BEGIN, [lease.incarnation])
        [(_, lease.epoch)] = await found.fetchall()
        await connection.execute(_TAKE, [lease.incarnation, names])
        await connection.execute(_NAME_CLUSTER)
    return lease


async def release(database: Database, lease: TestLease) -> None:
    async with await database.connect("tests") as connection:
        await connection.execute("SELECT release_lease(%s, %s)", [lease.incarnation, lease.epoch])


class PlainBlocks:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def read(
        self, key: str, object_size: int, start: int, size: int, ahead: int = 0
    ) -> bytes | memoryview:
        return await self._store.read(key, start, size)

    def expect(self, key: str, object_size: int, start: int, size: int) -> None:
        """No-op: without a cache there is no place for bytes that are not asked for yet."""


async def make_member(
    database: Database,
    objects: ObjectStore,
    clock: Clock,
    *,
    tail_bytes: int = 2**20,
    inline_bytes: int = 2**19,
    lease: TestLease | None = None,
    last_commits: LastCommits | None = None,
    upkeep: UpkeepSettings | None = None,
) -> SharedStorage:
    """Of a broker that is not the coordinator. There must have been one. It keeps the logs of the scopes of
    its lease."""
    held = lease or await take_lease(database, scopes=())
    made = SharedStorage(
        database,
        objects,
        PlainBlocks(objects),
        held,
        clock=clock,
        tail_bytes=tail_bytes,
        inline_bytes=inline_bytes,
        last_commits=last_commits,
        upkeep=upkeep,
    )
    await keep_logs(made, held)
    return made


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
    scopes: Collection[Scope] = SCOPES,
) -> SharedStorage:
    lease = await take_lease(database, incarnation, scopes)
    lease.on_fenced = on_fenced
    made = SharedStorage(
        database,
        objects,
        PlainBlocks(objects),
        lease,
        clock=clock,
        tail_bytes=tail_bytes,
        inline_bytes=inline_bytes,
        upkeep=upkeep,
    )
    await keep_logs(made, lease)
    return made


async def serve(storage: SharedStorage, *scopes: Scope) -> None:
    """Namespaces that the lease of the broker has, as after their load."""
    for scope in scopes:
        await storage.take_namespaces(scope)
        storage.serve_namespaces(scope)


async def keep_logs(storage: SharedStorage, lease: TestLease) -> None:
    """Of all scopes of housekeeping that the broker holds, as its keeper does it."""
    for scope in HOUSEKEEPING:
        if lease.holds(scope):
            await storage.log_scopes.take(scope)


async def move_scope(database: Database, scope: Scope, holder: SharedStorage, to: SharedStorage) -> None:
    """From one broker to another, as their keepers do it."""
    await holder.log_scopes.release(scope)
    await release_scope(database, scope, holder)
    await take_scope(database, scope, to)
    await to.log_scopes.take(scope)


async def take_scope(database: Database, scope: Scope, to: SharedStorage) -> None:
    """One that nobody holds, in the database."""
    lease = to._lease
    assert isinstance(lease, TestLease)
    async with await database.connect("tests") as connection:
        found = await connection.execute(
            "SELECT take_scopes(%s, %s, %s)", [lease.incarnation, lease.epoch, [scope.name]]
        )
        [(answer,)] = await found.fetchall()
    assert scope.name in answer["taken"]
    lease.scopes.add(scope)


async def release_scope(database: Database, scope: Scope, holder: SharedStorage) -> None:
    """In the database only: the broker may still believe to hold it."""
    lease = holder._lease
    assert isinstance(lease, TestLease)
    lease.scopes.discard(scope)
    async with await database.connect("tests") as connection:
        await connection.execute(
            "SELECT release_scope(%s, %s, %s)", [lease.incarnation, lease.epoch, scope.name]
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
