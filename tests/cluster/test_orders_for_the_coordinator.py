"""What operators order while a broker coordinates against their orders, because no other one did."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from posthouse.model.brokers import ClusterView
from posthouse.model.clock import ManualClock
from posthouse.model.scopes import COORDINATOR
from posthouse.node_campaign import Campaign
from posthouse.node_coordinator import CoordinatorScope
from posthouse.protocols.scope_moves import ScopeMoves
from tests.cluster.scope_views import cluster_broker, cluster_view

OWN, OTHER = 1, 2


class Registry:
    """Heartbeats when the test sends them."""

    loss = None

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self._next = asyncio.Event()

    async def next_view(self) -> ClusterView:
        await self._next.wait()
        return self.view

    async def finds(self, view: ClusterView) -> None:
        """Returns when all that waited for it have done what they do."""
        self.view = view
        self._next.set()
        self._next = asyncio.Event()
        for _ in range(5):
            await asyncio.sleep(0)

    def lease_seconds_left(self) -> float:
        return 0.0

    def took_coordinator(self, epoch: int) -> None: ...


class Scopes:
    """The scope is free."""

    def __init__(self) -> None:
        self.given_up = asyncio.Event()
        self.lease = SimpleNamespace(scopes={}, holds=lambda scope: False)

    async def take(self, scopes: object) -> frozenset[object]:
        self.lease.scopes[COORDINATOR] = 7
        return frozenset({COORDINATOR})

    async def give_up(self, scope: object) -> None:
        self.given_up.set()


class Server:
    def __init__(self) -> None:
        self.may_load = asyncio.Event()
        self.is_loading = asyncio.Event()

    async def coordinate(self) -> None:
        self.is_loading.set()
        await self.may_load.wait()

    async def step_down(self) -> None: ...


class Running:
    def __init__(self, view: ClusterView) -> None:
        self.registry, self.scopes, self.server = Registry(view), Scopes(), Server()
        node: Any = SimpleNamespace(
            own=cluster_broker(OWN), registry=self.registry, clock=ManualClock(), moves=ScopeMoves()
        )
        scopes: Any = self.scopes
        scope = CoordinatorScope(node, scopes, Campaign(node), self.server)
        self.task = asyncio.create_task(scope.run())

    async def takes_over(self) -> None:
        async with asyncio.timeout(30):
            await self.server.is_loading.wait()

    async def gives_up(self) -> None:
        async with asyncio.timeout(30):
            await self.scopes.given_up.wait()


def ordered(to: int | None, **more: Any) -> ClusterView:
    return cluster_view([OWN, OTHER], {}, wanted={} if to is None else {COORDINATOR: to}, **more)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posthouse.node_campaign._UNWANTED_SECONDS", 0.0)


async def test_a_broker_stays_against_the_order_that_it_took_over_against() -> None:
    running = Running(ordered(OTHER))
    await running.takes_over()
    running.server.may_load.set()
    await running.registry.finds(ordered(OTHER))
    await running.registry.finds(ordered(OTHER))
    assert not running.scopes.given_up.is_set()
    running.task.cancel()


@pytest.mark.parametrize("newer", [ordered(None), ordered(OWN), ordered(None, draining=[OWN])])
async def test_a_newer_order_counts_at_once_also_if_it_repeats_an_older_one(newer: ClusterView) -> None:
    running = Running(ordered(OTHER))
    await running.takes_over()
    running.server.may_load.set()
    await running.registry.finds(newer)
    await running.registry.finds(ordered(OTHER))
    await running.gives_up()
    running.task.cancel()


async def test_a_broker_that_took_over_while_the_wanted_one_was_dead_gives_up_when_that_one_is_back() -> None:
    """Also if it comes back before the scope is loaded."""
    running = Running(ordered(OTHER, lapsed=[OTHER]))
    await running.takes_over()
    running.registry.view = ordered(OTHER)
    running.server.may_load.set()
    await running.gives_up()
    running.task.cancel()


async def test_a_broker_that_gives_up_for_another_one_leaves_it_the_time_to_take_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long it is since the scope was free before."""
    running = Running(ordered(OWN))
    running.server.may_load.set()
    await running.takes_over()
    monkeypatch.setattr("posthouse.node_campaign._UNWANTED_SECONDS", 10.0)
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + 11.0)
    running.server.is_loading.clear()
    await running.registry.finds(ordered(OTHER))
    await running.gives_up()
    await running.registry.finds(ordered(OTHER))
    await running.registry.finds(ordered(OTHER))
    assert not running.server.is_loading.is_set()
    running.task.cancel()
