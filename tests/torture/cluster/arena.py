"""Several brokers on one storage, and clients that know all addresses, or one of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, LiteralString

import psycopg

from posthouse.client.admin_client import AdminClient, part
from posthouse.client.errors import ClientError
from posthouse.model.scopes import COORDINATOR, Scope
from tests.protocols.amqp.wire import Closed
from tests.torture.brokers import Addresses, BrokerProcess, Recipe, running
from tests.torture.campaign import Arena
from tests.torture.cluster.nodes import NodeRecipe
from tests.torture.cluster.takeovers import TakeoverWatch
from tests.torture.queues.places import PLACES
from tests.torture.workloads import LOST, RETRY_SECONDS, Client, Refused

LAST = "last"
"""The name of the broker of the last look."""
HOLDER_SECONDS = 30.0
ANSWER_SECONDS = 10.0
_CONNECT_SECONDS = 2
_HOLDER = """
SELECT broker.name FROM posthouse.scope JOIN posthouse.lease USING (holder)
  JOIN posthouse.broker ON broker.incarnation = holder
WHERE scope.name = %s AND lease.until > clock_timestamp()
"""
_HELD = """
SELECT count(*) FROM posthouse.scope JOIN posthouse.broker ON broker.incarnation = holder
WHERE broker.name = %s
"""
_OF_OTHERS = """
SELECT count(*) FROM posthouse.scope
WHERE holder IS DISTINCT FROM (SELECT incarnation FROM posthouse.broker WHERE name = %s)
"""


async def _nothing() -> None:
    """No-op."""


def _post(address: str, path: str, body: object) -> None:
    with AdminClient(address, timeout=ANSWER_SECONDS) as client:
        client.post(path, body)


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
    ready: Callable[[], Awaitable[None]] = _nothing
    """When topics and queues are there, before any client works with them."""
    _connected: "set[asyncio.Task[None]]" = field(default_factory=set)

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
                living = asyncio.create_task(client.live(self.addresses(name)))
                self._connected.add(living)
                living.add_done_callback(self._connected.discard)
                try:
                    await living
                except asyncio.CancelledError:
                    own = asyncio.current_task()
                    if own is None or own.cancelling():
                        raise  # it does not only hang up
                except LOST:
                    pass
                except (Refused, Closed):
                    self.recorder.refused()
            await asyncio.sleep(RETRY_SECONDS)

    def hang_up(self) -> None:
        """Half of the clients connect again, to any broker that they know: those of queues would stay with a
        broker that is alive, whoever serves their queues."""
        connected = sorted(self._connected, key=lambda task: task.get_name())
        for living in self.random.sample(connected, len(connected) // 2):
            living.cancel()

    def addresses(self, name: str) -> Addresses:
        return replace(self.nodes[name].addresses, broker=name, answer_seconds=ANSWER_SECONDS)

    async def holder(self, scope: Scope = COORDINATOR) -> str:
        """The name of the broker that serves it."""
        return await self._holder(
            scope, lambda name: self.nodes[name].is_alive, f"no broker takes over {scope}"
        )

    async def held_by(self, scope: Scope, name: str) -> None:
        """Wait until this broker serves it."""
        await self._holder(scope, lambda holder: holder == name, f"{scope} does not come to {name}")

    async def not_held_by(self, scope: Scope, name: str) -> None:
        """Wait until another broker serves it."""
        await self._holder(scope, lambda holder: holder != name, f"{scope} stays at {name}")

    async def _holder(self, scope: Scope, is_meant: Callable[[str], bool], problem: str) -> str:
        deadline = time.monotonic() + HOLDER_SECONDS
        while True:
            row = await self._asked(_HOLDER, scope.name)
            if row is not None and row[0] in self.nodes and is_meant(row[0]):
                return str(row[0])
            assert time.monotonic() < deadline, problem
            await asyncio.sleep(0.05)

    async def replaced(self, name: str) -> None:
        """Wait until other brokers have taken all that this one held."""
        deadline = time.monotonic() + HOLDER_SECONDS
        while await self._asked(_HELD, name) != (0,):
            assert time.monotonic() < deadline, f"no broker takes over from {name}"
            await asyncio.sleep(0.05)

    async def order(self, path: str, body: object = None) -> None:
        """What operators order by a command. Any broker is asked, again while there is no answer."""
        deadline = time.monotonic() + HOLDER_SECONDS
        while True:
            alive = [node.addresses.admin for node in self.nodes.values() if node.is_alive]
            try:
                await asyncio.to_thread(_post, self.random.choice(alive), path, body)
            except ClientError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def order_move(self, scope: Scope, name: str) -> None:
        await self.order(f"/v1/cluster/scopes/{part(scope.name)}/move", {"broker": name})

    async def _spread_places(self) -> None:
        """Queues of each virtual host lie with another broker, as far as there are so many. What operators
        want holds for ever: a broker that comes back gets them again."""
        names = self.random.sample(list(self.recipes), len(self.recipes))
        wanted = {place.scope: names[number % len(names)] for number, place in enumerate(PLACES)}
        for scope, name in wanted.items():
            await self.order_move(scope, name)
        for scope, name in wanted.items():
            await self.held_by(scope, name)

    async def _asked(self, query: LiteralString, *values: object) -> tuple[Any, ...] | None:
        try:
            async with await psycopg.AsyncConnection.connect(
                self.database, autocommit=True, connect_timeout=_CONNECT_SECONDS
            ) as connection:
                return await (await connection.execute(query, values)).fetchone()
        except psycopg.Error:
            return None  # it is away, which may be the fault of this round

    async def holds_all(self, name: str) -> None:
        """Wait until this broker holds every scope. Others are named as holders until then."""
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
        await self._spread_places()
        await self.workload.prepare(self.nodes[await self.holder()].addresses)
        await self.ready()

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
