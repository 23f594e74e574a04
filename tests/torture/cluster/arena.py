"""Several brokers on one storage, and clients that know all addresses, or one of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, LiteralString

import psycopg

from tests.protocols.amqp.wire import Closed
from tests.torture.brokers import Addresses, BrokerProcess, Recipe, running
from tests.torture.campaign import Arena
from tests.torture.cluster.nodes import NodeRecipe
from tests.torture.cluster.takeovers import TakeoverWatch
from tests.torture.workloads import LOST, RETRY_SECONDS, Client, Refused

LAST = "last"
"""The name of the broker of the last look."""
HOLDER_SECONDS = 30.0
ANSWER_SECONDS = 10.0
_CONNECT_SECONDS = 2
_HOLDER = """
SELECT broker.name FROM posthouse.scope JOIN posthouse.lease USING (holder)
  JOIN posthouse.broker ON broker.incarnation = holder
WHERE scope.name = 'coordinator' AND lease.until > clock_timestamp()
"""
_OF_OTHERS = """
SELECT count(*) FROM posthouse.scope
WHERE holder IS DISTINCT FROM (SELECT incarnation FROM posthouse.broker WHERE name = %s)
"""


async def _nothing() -> None:
    """No-op."""


@dataclass(slots=True)
class ClusterArena(Arena):
    recipes: dict[str, NodeRecipe] = field(default_factory=dict)
    """How each broker is started, by name."""
    database: str = ""
    """The address that the arena itself uses."""
    nodes: dict[str, BrokerProcess] = field(default_factory=dict)
    choices: Random = field(default_factory=Random)
    """Of addresses, by clients."""
    is_pinned: bool = False
    """Whether each client knows only one broker, and waits for it."""
    begin: Callable[[], Awaitable[None]] = _nothing
    """Before any broker runs."""
    began: Callable[[], Awaitable[None]] = _nothing
    """When they run, and have created the tables."""

    async def ensure_running(self) -> BrokerProcess:
        """All brokers, with all clients at work."""
        await self.start_nodes()
        if not self._tasks:
            names = list(self.recipes)
            self._tasks = [
                asyncio.create_task(self._live_on(client, names[number % len(names)]))
                for number, client in enumerate(self.workload.clients)
            ]
            self._tasks.append(asyncio.create_task(TakeoverWatch(self.recorder, self.database).run()))
        return self.nodes[await self.holder()]

    async def start_nodes(self) -> None:
        for name, recipe in self.recipes.items():
            node = self.nodes.get(name)
            if node is None or not node.is_alive:
                node = BrokerProcess(recipe)
                await node.start()
                self.nodes[name] = node

    async def _live_on(self, client: Client, home: str) -> None:
        """As real clients do: a lost connection, or a refusal, and it goes on at any address."""
        while True:
            alive = [name for name, node in self.nodes.items() if node.is_alive]
            name = home if self.is_pinned else self.choices.choice(alive)
            if name in alive:
                try:
                    await client.live(self.addresses(name))
                except LOST:
                    pass
                except (Refused, Closed):
                    self.recorder.refused()
            await asyncio.sleep(RETRY_SECONDS)

    def addresses(self, name: str) -> Addresses:
        return replace(self.nodes[name].addresses, broker=name, answer_seconds=ANSWER_SECONDS)

    async def holder(self) -> str:
        """The name of the broker that serves."""
        deadline = time.monotonic() + HOLDER_SECONDS
        while True:
            name = await self._asked_holder()
            if name is not None and self.nodes[name].is_alive:
                return name
            assert time.monotonic() < deadline, "no broker takes over"
            await asyncio.sleep(0.05)

    async def replaced(self, name: str) -> None:
        """Wait until another broker serves."""
        deadline = time.monotonic() + HOLDER_SECONDS
        while await self._asked_holder() in (None, name):
            assert time.monotonic() < deadline, f"no broker takes over from {name}"
            await asyncio.sleep(0.05)

    async def _asked_holder(self) -> str | None:
        row = await self._asked(_HOLDER)
        return None if row is None or row[0] not in self.nodes else str(row[0])

    async def _asked(self, query: LiteralString, *values: object) -> tuple[Any, ...] | None:
        try:
            async with await psycopg.AsyncConnection.connect(
                self.database, autocommit=True, connect_timeout=_CONNECT_SECONDS
            ) as connection:
                return await (await connection.execute(query, values)).fetchone()
        except psycopg.Error:
            return None  # it is away, which may be the fault of this round

    async def holds_all(self, name: str) -> None:
        """Wait until this broker holds every scope. Others are named as coordinators until then."""
        deadline = time.monotonic() + HOLDER_SECONDS
        while await self._asked(_OF_OTHERS, name) != (0,):
            assert time.monotonic() < deadline, f"{name} does not take over everything"
            await asyncio.sleep(0.05)

    async def standby(self) -> str:
        holder = await self.holder()
        return self.random.choice([name for name in self.nodes if name != holder])

    async def kill_node(self, name: str) -> None:
        self.recorder.fault(f"kill {name}")
        self.nodes[name].kill()

    async def prepare(self) -> None:
        await self.begin()
        await self.start_nodes()
        await self.began()
        await self.workload.prepare(self.nodes[await self.holder()].addresses)

    async def last_look(self, recipe: Recipe) -> None:
        await self.close()
        async with running(recipe) as node:
            self.nodes = {LAST: node}
            await self.holds_all(LAST)  # a broker that takes over closes the connections of its clients
            await self.workload.finish(node.addresses)
            await node.stop()

    async def close(self) -> None:
        self.silence()
        for node in self.nodes.values():
            node.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
