"""A shared storage with a proxy before its database, clients that use it, and the verdict on them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from posthouse.model.clock import Clock
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.checker.judge import check
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.shared.commit_clients import Clients, Scene, make_scene
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.members import Member
from tests.storage.shared.opened import make_shared, take_lease
from tests.storage.shared.postgres_proxy import PostgresProxy, proxied

ROUND_SECONDS = 30


class FaultArena:
    """`open` first. The clients go on with the storage of the coordinator."""

    scene: Scene
    clients: Clients
    members: list[Member]
    """Brokers that are not the coordinator, which take part in what the clients do."""

    def __init__(self, direct: Database, database: Database, proxy: PostgresProxy, clock: Clock) -> None:
        self.direct = direct
        """Not through the proxy."""
        self.database = database
        self.proxy = proxy
        self.clock = clock
        self.objects = FaultyObjectStore(MemoryObjectStore(clock))
        self.fenced = 0
        """How many storages ended because they had lost the lease."""
        self._is_fenced = asyncio.Event()
        self._opened: list[SharedStorage] = []

    async def open(self, seed: int, members: int = 0) -> None:
        self.scene = await make_scene(await self.take_over(self.database), seed)
        self.members = [
            Member(self.database, self.objects, self.clock, await take_lease(self.database, scopes=()))
            for _ in range(members)
        ]
        for each in self.members:
            await each.open()
        self.scene.members = self.members
        self.clients = Clients(self.scene)

    async def take_over(self, database: Database, incarnation: UUID | None = None) -> SharedStorage:
        """Another storage is the coordinator's from now on, and knows what the database knows."""
        storage = await make_shared(
            database, self.objects, self.clock, on_fenced=self._on_fenced, incarnation=incarnation
        )
        await storage.open()
        self._opened.append(storage)
        return storage

    def _on_fenced(self) -> None:
        self.fenced += 1
        self._is_fenced.set()

    async def round(self) -> None:
        """One round of the clients. If their storage is fenced, they go on with another one."""
        async with asyncio.timeout(ROUND_SECONDS):
            successor = asyncio.create_task(self._succeed())
            try:
                await self.clients.round()
            finally:
                successor.cancel()
                await asyncio.wait([successor])

    async def _succeed(self) -> None:
        while True:
            await self._is_fenced.wait()
            self._is_fenced.clear()
            self.scene.storage = await self.take_over(self.database)

    async def anomalies(self) -> list[str]:
        """What the checker finds after a last look by another storage."""
        await self.clients.finish(await self.take_over(self.direct))
        return [str(each) for each in check(self.scene.recorder.history).anomalies]

    async def close(self) -> None:
        self.proxy.accept()
        self.objects.heal()
        for storage in self._opened:
            await storage.close()
        for member in self.members:
            await member.close()


@asynccontextmanager
async def fault_arena(
    server: PostgresServer,
    clock: Clock,
    *,
    seed: int = 1,
    watched: str = "posthouse commits",
    members: int = 0,
) -> AsyncIterator[FaultArena]:
    with new_database(server, MIGRATED) as url, pytest.MonkeyPatch.context() as patch:
        # Commits of objects gather for a shorter time, so that rounds are short.
        patch.setattr("posthouse.storage.shared.commits.commit_path._GATHER_SECONDS", 0.002)
        # Every commit that waits for another one is uploaded meanwhile.
        patch.setattr("posthouse.storage.shared.commits.committer._AHEAD_BYTES", 1)
        async with proxied(url, watched) as (proxy, through_proxy):
            arena = FaultArena(Database(url), Database(through_proxy), proxy, clock)
            await arena.open(seed, members)
            try:
                yield arena
            finally:
                await arena.close()
