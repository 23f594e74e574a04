"""The keeper of one broker after another, on a table of scopes in memory."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from posthouse.model.brokers import ClusterView
from posthouse.model.scopes import GROUPS
from tests.cluster.scope_cluster import ALL, FakeServer, ScopeCluster


async def test_a_broker_that_is_alone_takes_all_at_once() -> None:
    cluster = ScopeCluster(1)
    await cluster.round()
    assert cluster.counts() == {1: 160}
    assert (
        cluster.nodes[1].moves.taken
        == cluster.nodes[1].moves.held
        == {
            "groups": 64,
            "transactions": 64,
            "namespaces": 16,
            "housekeeping": 16,
        }
    )
    assert cluster.nodes[1].moves.load_seconds.count == 160
    await cluster.round()
    assert len(cluster.nodes[1].leases.asked) == 1


async def test_brokers_that_start_together_share() -> None:
    cluster = ScopeCluster(1, 2, 3)
    assert await cluster.settle() == 1
    assert sorted(cluster.counts().values()) == [52, 52, 56]


async def test_scopes_go_to_a_broker_that_joins_one_by_one() -> None:
    cluster = ScopeCluster(1)
    await cluster.settle()
    cluster.join(2)
    for moved in range(1, 81):
        assert await cluster.round()
        assert cluster.nodes[1].moves.handed_over.total() == moved
        assert cluster.counts() == {1: 160 - moved, 2: moved}
        cluster.check()
    assert not await cluster.round()
    assert cluster.nodes[1].moves.unload_seconds.count == 80


async def test_more_heartbeats_do_not_move_more() -> None:
    cluster = ScopeCluster(1)
    await cluster.settle()
    cluster.join(2)
    await cluster.round()
    for _ in range(5):
        await cluster.nodes[1].step(cluster.view())
    assert cluster.nodes[1].moves.handed_over.total() == 1


async def test_a_broker_that_has_just_started_gets_none_of_others() -> None:
    cluster = ScopeCluster(1)
    await cluster.settle()
    cluster.join(2)
    cluster.young = {2}
    for _ in range(3):
        await cluster.round()
    assert cluster.counts() == {1: 160, 2: 0}
    cluster.young = set()
    await cluster.round()
    assert cluster.counts() == {1: 159, 2: 1}


async def test_a_broker_that_has_just_started_takes_what_is_free() -> None:
    cluster = ScopeCluster(1, 2)
    cluster.young = {1, 2}
    await cluster.round()
    assert cluster.counts() == {1: 80, 2: 80}


async def test_the_scopes_of_a_dead_broker_are_taken_once_its_lease_is_over() -> None:
    cluster = ScopeCluster(1, 2, 3)
    await cluster.settle()
    cluster.kill(3, is_lease_over=False)
    await cluster.round()
    assert not cluster.all_served()
    cluster.table.leases.discard(3)
    await cluster.round()
    assert cluster.counts() == {1: 80, 2: 80}


async def test_a_broker_whose_lease_is_over_loses_its_scopes_and_hands_none_over() -> None:
    cluster = ScopeCluster(1, 2)
    await cluster.settle()
    cluster.lapsed = {2}
    await cluster.round(brokers=[2])
    assert cluster.counts() == {1: 80, 2: 80}
    cluster.table.leases.discard(2)
    await cluster.round(brokers=[1])
    assert cluster.counts()[1] == 160


async def test_drain_and_undrain() -> None:
    cluster = ScopeCluster(1, 2)
    await cluster.settle()
    cluster.draining = {2}
    assert await cluster.settle() >= 80
    assert cluster.counts() == {1: 160, 2: 0}
    cluster.draining = set()
    assert await cluster.settle() >= 80
    assert cluster.counts() == {1: 80, 2: 80}


async def test_the_last_broker_keeps_its_scopes_when_it_is_drained() -> None:
    cluster = ScopeCluster(1)
    await cluster.settle()
    cluster.draining = {1}
    await cluster.settle()
    assert cluster.counts() == {1: 160}


async def test_a_scope_that_is_wanted_elsewhere_moves_and_comes_back() -> None:
    cluster = ScopeCluster(1, 2)
    await cluster.settle()
    scope = min(cluster.nodes[1].server.served)
    cluster.wanted = {scope: 2}
    await cluster.settle()
    assert scope in cluster.nodes[2].server.served
    assert cluster.counts() == {1: 80, 2: 80}


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_a_database_that_is_away_while_scopes_are_taken(fault: str) -> None:
    cluster = ScopeCluster(1)
    cluster.nodes[1].leases.fault = fault  # type: ignore[assignment]
    await cluster.round()
    assert cluster.counts() == {1: 0}
    await cluster.round()
    assert cluster.counts() == {1: 160}


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_a_database_that_is_away_while_a_scope_is_released(fault: str) -> None:
    cluster = ScopeCluster(1)
    await cluster.settle()
    cluster.join(2)
    cluster.nodes[1].leases.fault = fault  # type: ignore[assignment]
    await cluster.round()
    assert cluster.counts()[1] == 159
    assert cluster.nodes[1].moves.handed_over.total() == 0
    await cluster.settle()
    assert cluster.counts() == {1: 80, 2: 80}


async def test_what_was_taken_by_a_lost_answer_and_is_planned_elsewhere_is_released() -> None:
    cluster = ScopeCluster(1)
    cluster.nodes[1].leases.fault = "after"
    await cluster.round()
    cluster.join(2)
    await cluster.round()
    assert cluster.counts() == {1: 80, 2: 80}


async def test_a_scope_that_cannot_be_loaded_keeps_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ScopeCluster(1)
    cluster.nodes[1].server.broken = {GROUPS[3]}
    for _ in range(3):
        await cluster.round()
    assert cluster.counts() == {1: 159}
    assert caplog.text.count("broker b1 cannot load groups/03") == 1
    cluster.nodes[1].server.broken = set()
    await cluster.round()
    assert cluster.counts() == {1: 160}


async def test_a_scope_that_cannot_be_unloaded_is_not_released() -> None:
    cluster = ScopeCluster(1)
    await cluster.settle()
    cluster.join(2)
    cluster.nodes[1].server.broken = set(ALL)
    for _ in range(3):
        await cluster.round()
    assert cluster.counts() == {1: 159, 2: 0}
    assert len(cluster.nodes[1].keeper.held) == 160
    cluster.nodes[1].server.broken = set()
    cluster.kill(2)
    await cluster.round()
    assert cluster.counts() == {1: 160}


async def test_a_broker_that_is_not_ready_asks_for_a_newer_view() -> None:
    cluster = ScopeCluster(1)
    node = cluster.nodes[1]
    view = cluster.view()
    starting = replace(view, brokers=(replace(view.brokers[0], is_ready=False),))
    assert await node.step(starting)
    assert not node.keeper.held
    assert await node.step(view)
    assert not node.keeper.has_share.is_set(), "no heartbeat has shown it"
    assert not await node.step(cluster.view())
    assert node.keeper.has_share.is_set()


async def test_nothing_is_done_by_a_broker_that_is_not_in_its_view() -> None:
    cluster = ScopeCluster(1)
    await cluster.settle()
    assert await cluster.nodes[1].step(ClusterView())
    assert cluster.counts() == {1: 160}


async def test_the_next_app_loads_what_the_broker_holds() -> None:
    cluster = ScopeCluster(1)
    node = cluster.nodes[1]
    heartbeats = FakeHeartbeats(cluster)
    for _ in range(2):
        node.server = FakeServer(cluster.table, 1)
        heartbeats.waiting.clear()
        running = asyncio.create_task(node.keeper.run(node.server, heartbeats))
        await heartbeats.waiting.wait()
        assert node.server.served == node.keeper.loaded == ALL
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        assert node.keeper.loaded == set()
        assert node.keeper.held == ALL
        assert heartbeats.is_moving is False
    assert len(node.leases.asked) == 1


async def test_heartbeats_hurry_while_scopes_move() -> None:
    cluster = ScopeCluster(1, 2)
    heartbeats = FakeHeartbeats(cluster)
    running = asyncio.create_task(cluster.nodes[1].keeper.run(cluster.nodes[1].server, heartbeats))
    await heartbeats.waiting.wait()
    assert heartbeats.is_moving
    await cluster.settle()
    heartbeats.beat()
    await heartbeats.waiting.wait()
    assert heartbeats.is_moving, "no broker is the coordinator"
    heartbeats.has_coordinator = True
    heartbeats.beat()
    await heartbeats.waiting.wait()
    assert not heartbeats.is_moving
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


class FakeHeartbeats:
    def __init__(self, cluster: ScopeCluster) -> None:
        self._cluster = cluster
        self._beaten = asyncio.Event()
        self.waiting = asyncio.Event()
        """The keeper waits for a heartbeat."""
        self.is_moving: bool | None = None
        self.has_coordinator = False

    @property
    def view(self) -> ClusterView:
        self.waiting.clear()
        view = self._cluster.view()
        if self.has_coordinator:
            view = replace(view, holder_incarnation=view.brokers[0].incarnation)
        return view

    async def next_view(self) -> ClusterView:
        self.waiting.set()
        self._beaten.clear()
        await self._beaten.wait()
        return self.view

    def beat(self) -> None:
        self.waiting.clear()
        self._beaten.set()

    def hurry(self, is_moving: bool) -> None:
        self.is_moving = is_moving


async def test_a_scope_that_cannot_be_given_up_ends_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise no broker serves it, and none of the others is handed over."""
    monkeypatch.setattr("posthouse.node_scopes.ABANDON_SECONDS", 0.01)
    cluster = ScopeCluster(1, 2)
    await cluster.settle()
    first = cluster.nodes[1]
    stuck = min(first.keeper.held)
    first.server.stuck.add(stuck)
    cluster.wanted = {stuck: 2}
    await first.step(cluster.view())
    assert first.leases.abandoned == f"the broker did not hand over {stuck} within 0.01 s"
    assert cluster.table.held[stuck] == 1, "until its lease is over"
    assert stuck in first.server.served
