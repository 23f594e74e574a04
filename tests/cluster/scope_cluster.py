"""Keepers of several brokers on one table of scopes, without a database."""

import asyncio
from collections.abc import Collection, Iterable
from typing import Literal

from posthouse.model.brokers import ClusterView
from posthouse.model.clock import ManualClock
from posthouse.model.errors import Unavailable
from posthouse.model.scopes import GROUPS, HOUSEKEEPING, NAMESPACES, TRANSACTIONS, Scope
from posthouse.node_scopes import ScopeKeeper
from posthouse.protocols.scope_moves import ScopeMoves
from tests.cluster.scope_views import cluster_broker, cluster_view

ALL = frozenset((*GROUPS, *TRANSACTIONS, *NAMESPACES, *HOUSEKEEPING))
"""The scopes that are spread."""
Fault = Literal["before", "after"]
"""Whether a statement fails before it has an effect, or only its answer is lost."""


class ScopeTable:
    """What the database knows."""

    def __init__(self) -> None:
        self.held: dict[Scope, int] = {}
        self.leases: set[int] = set()

    def take(self, broker: int, scopes: Collection[Scope]) -> frozenset[Scope]:
        free = [each for each in scopes if self.held.get(each) in ({None, broker} | self._without_lease())]
        self.held.update(dict.fromkeys(free, broker))
        return frozenset(free)

    def _without_lease(self) -> set[int]:
        return set(self.held.values()) - self.leases

    def release(self, broker: int, scope: Scope) -> None:
        if self.held.get(scope) == broker:
            del self.held[scope]


class FakeLeases:
    def __init__(self, table: ScopeTable, broker: int) -> None:
        self._table = table
        self._broker = broker
        self.fault: Fault | None = None
        """Of the next statement."""
        self.asked: list[frozenset[Scope]] = []
        self.abandoned: str | None = None

    async def take(self, scopes: Collection[Scope]) -> frozenset[Scope]:
        self.asked.append(frozenset(scopes))
        self._fail("before")
        taken = self._table.take(self._broker, scopes)
        self._fail("after")
        return taken

    async def release(self, scope: Scope) -> None:
        self._fail("before")
        self._table.release(self._broker, scope)
        self._fail("after")

    def abandon(self, why: str) -> None:
        self.abandoned = why

    def _fail(self, when: Fault) -> None:
        if self.fault == when:
            self.fault = None
            raise Unavailable("the database is away")


class FakeServer:
    """Notes what it serves, and that it served only what this broker holds."""

    def __init__(self, table: ScopeTable, broker: int) -> None:
        self._table = table
        self._broker = broker
        self.served: set[Scope] = set()
        self.broken: set[Scope] = set()
        """Cannot be loaded or unloaded."""
        self.stuck: set[Scope] = set()
        """In use for ever."""

    async def take_scope(self, scope: Scope) -> None:
        assert self._table.held.get(scope) == self._broker
        if scope in self.broken:
            raise Unavailable(f"{scope} cannot be loaded")
        self.served.add(scope)

    async def release_scope(self, scope: Scope) -> None:
        assert scope not in self.served or self._table.held.get(scope) == self._broker
        if scope in self.stuck:
            await asyncio.Event().wait()
        self.served.discard(scope)
        if scope in self.broken:
            raise Unavailable(f"{scope} cannot be unloaded")


class FakeNode:
    def __init__(self, table: ScopeTable, broker: int, clock: ManualClock) -> None:
        self.id = broker
        self.leases = FakeLeases(table, broker)
        self.server = FakeServer(table, broker)
        self.moves = ScopeMoves()
        self.keeper = ScopeKeeper(cluster_broker(broker), self.leases, clock=clock, moves=self.moves)

    async def step(self, view: ClusterView) -> bool:
        return await self.keeper.step(self.server, view)


class ScopeCluster:
    def __init__(self, *brokers: int) -> None:
        self.clock = ManualClock()
        self.table = ScopeTable()
        self.nodes: dict[int, FakeNode] = {}
        self.draining: set[int] = set()
        self.young: set[int] = set()
        self.lapsed: set[int] = set()
        """Brokers that live, and whose leases are over."""
        self.wanted: dict[Scope, int] = {}
        for each in brokers:
            self.join(each)

    def join(self, broker: int) -> FakeNode:
        self.table.leases.add(broker)
        made = self.nodes[broker] = FakeNode(self.table, broker, self.clock)
        return made

    def kill(self, broker: int, *, is_lease_over: bool = True) -> None:
        del self.nodes[broker]
        if is_lease_over:
            self.table.leases.discard(broker)

    def view(self) -> ClusterView:
        return cluster_view(
            sorted(self.nodes),
            self.table.held,
            draining=self.draining,
            wanted=self.wanted,
            young=self.young,
            lapsed=self.lapsed,
        )

    async def round(self, brokers: Iterable[int] | None = None) -> bool:
        """A second passes, and each broker has a heartbeat. Returns whether scopes have still to move."""
        self.clock.advance(1)
        is_moving = False
        for each in self.nodes if brokers is None else brokers:
            is_moving |= await self.nodes[each].step(self.view())
        return is_moving

    async def settle(self) -> int:
        """The seconds until no scope has to move."""
        for seconds in range(200):
            if not await self.round():
                return seconds
        raise AssertionError("scopes do not stop moving")

    def counts(self) -> dict[int, int]:
        return {each: len(node.server.served) for each, node in self.nodes.items()}

    def check(self) -> None:
        """No scope is served by two brokers, or by one that does not hold it."""
        served = [(scope, each) for each, node in self.nodes.items() for scope in node.server.served]
        assert len({scope for scope, _ in served}) == len(served)
        assert all(self.table.held.get(scope) == each for scope, each in served)

    def all_served(self) -> bool:
        return sum(self.counts().values()) == len(ALL)
