"""Scopes by HTTP and by the command line, on a cluster that is only a view."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from posthouse.app import App
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.errors import NotFound
from posthouse.model.scopes import COORDINATOR, GROUPS, SCOPES, Scope
from posthouse.protocols.membership import Membership
from posthouse.protocols.scope_moves import ScopeMoves
from posthouse.testing import AsyncBroker
from tests.cli.programs import inside
from tests.cluster.scope_views import cluster_view, incarnation
from tests.protocols.admin.clients import USERS, answered, client
from tests.served import on_any_port


class Lease:
    is_valid = True
    is_cut_off = False
    epoch = 7
    seconds_left = 6.0


class FakeCluster:
    """Two brokers, of which the first is asked. Scopes move when they are looked at."""

    def __init__(self) -> None:
        self.view = cluster_view([1, 2], {scope: 1 + number % 2 for number, scope in enumerate(SCOPES)})
        self.is_obeyed = True

    def _change(self, broker: str, **changes: Any) -> None:
        brokers = tuple(
            replace(each, **changes) if each.name == broker else each for each in self.view.brokers
        )
        self.view = replace(self.view, brokers=brokers)

    async def drain(self, broker: str, *, is_draining: bool) -> None:
        if all(each.name != broker for each in self.view.brokers):
            raise NotFound(f"no broker has registered as {broker!r}")
        self._change(broker, is_draining=is_draining)

    async def want(self, scope: Scope, broker: str | None) -> None:
        ids = {each.name: each.id for each in self.view.brokers}
        wanted = {**self.view.wanted, scope: ids[broker]} if broker else {}
        self.view = replace(self.view, wanted=wanted)

    def looked_at(self) -> ClusterView:
        if self.is_obeyed and any(each.is_draining for each in self.view.brokers):
            [other] = [each for each in self.view.brokers if not each.is_draining]
            self.view = replace(self.view, holders=dict.fromkeys(SCOPES, other.incarnation))
        return self.view

    def kill(self, broker: int) -> None:
        self.view = replace(self.view, brokers=tuple(each for each in self.view.brokers if each.id != broker))

    def not_ready(self, broker: str) -> None:
        self._change(broker, is_ready=False)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    yield FakeCluster()


@asynccontextmanager
async def served(cluster: FakeCluster) -> AsyncIterator[httpx.AsyncClient]:
    own: ClusterBroker = cluster.view.brokers[0]
    moves = ScopeMoves(
        held=Counter(groups=32, housekeeping=8), taken=Counter(groups=40), handed_over=Counter(groups=8)
    )
    moves.load_seconds.observe(0.1)
    membership = Membership(own=own, view=cluster.looked_at, coordinating=Lease, control=cluster, moves=moves)
    app = App(on_any_port(memory=True, kafka=None), membership=membership)
    await app.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://{app.listeners['admin']}", timeout=30) as http:
            yield http
    finally:
        await app.stop()


def holds(found: dict[str, Any]) -> dict[str, int]:
    return {each["name"]: each["scopes"] for each in found["brokers"]}


async def test_which_broker_holds_which_scope(cluster: FakeCluster) -> None:
    async with served(cluster) as http:
        found = answered(await http.get("/v1/cluster"))
        assert [each["name"] for each in found["scopes"]] == [each.name for each in SCOPES]
        assert found["scopes"][0] == {"name": "coordinator", "holder": 1, "wanted": None}
        assert found["scopes"][1] == {"name": "groups/00", "holder": 2, "wanted": None}
        assert holds(found) == {"b1": 81, "b2": 80}
        assert [each["state"] for each in found["brokers"]] == ["ready", "ready"]
        cluster.kill(2)
        found = answered(await http.get("/v1/cluster"))
        assert found["scopes"][1]["holder"] is None


async def test_drain_and_undrain(cluster: FakeCluster) -> None:
    async with served(cluster) as http:
        answered(await http.post("/v1/cluster/brokers/b2/drain"), 204)
        found = answered(await http.get("/v1/cluster"))
        assert holds(found) == {"b1": 161, "b2": 0}
        assert [each["state"] for each in found["brokers"]] == ["ready", "draining"]
        refused = answered(await http.post("/v1/cluster/brokers/b1/drain"), 409)
        assert "no other broker" in refused["detail"]
        answered(await http.post("/v1/cluster/brokers/b2/undrain"), 204)
        assert not cluster.view.brokers[1].is_draining
        answered(await http.post("/v1/cluster/brokers/b7/drain"), 404)


async def test_move(cluster: FakeCluster) -> None:
    async with served(cluster) as http:
        answered(await http.post("/v1/cluster/scopes/groups%2F07/move", json={"broker": "b1"}), 204)
        assert cluster.view.wanted == {GROUPS[7]: 1}
        assert answered(await http.get("/v1/cluster"))["scopes"][8]["wanted"] == 1
        answered(await http.post("/v1/cluster/scopes/groups%2F07/move", json={}), 204)
        assert cluster.view.wanted == {}
        answered(await http.post("/v1/cluster/scopes/coordinator/move", json={"broker": "b2"}), 204)
        assert cluster.view.wanted == {COORDINATOR: 2}
        answered(await http.post("/v1/cluster/scopes/groups%2F64/move", json={"broker": "b1"}), 404)
        answered(await http.post("/v1/cluster/scopes/groups%2F07/move", json={"broker": "b9"}), 409)
        cluster.not_ready("b2")
        answered(await http.post("/v1/cluster/scopes/groups%2F07/move", json={"broker": "b2"}), 409)
        assert answered(await http.get("/v1/cluster"))["brokers"][1]["state"] == "starting"


async def test_metrics(cluster: FakeCluster) -> None:
    async with served(cluster) as http:
        found = set((await http.get("/metrics")).text.splitlines())
    assert {
        'posthouse_scopes_held{kind="groups"} 32',
        'posthouse_scopes_held{kind="housekeeping"} 8',
        'posthouse_scopes_taken_total{kind="groups"} 40',
        'posthouse_scopes_taken_total{kind="housekeeping"} 0',
        'posthouse_scopes_handed_over_total{kind="groups"} 8',
        'posthouse_scope_move_duration_seconds_count{step="load"} 1',
        'posthouse_scope_move_duration_seconds_count{step="unload"} 0',
    } <= found


async def test_a_broker_that_is_alone_has_no_scopes_to_move(tmp_path: Path) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        assert answered(await http.get("/v1/cluster")) == {
            "brokers": [],
            "scopes": [],
            "current": True,
        }
        answered(await http.post("/v1/cluster/brokers/b1/drain"), 409)
        answered(await http.post("/v1/cluster/scopes/groups%2F07/move", json={}), 409)
        done = await asyncio.to_thread(inside, "cluster", "status", admin=broker.admin)
        assert "does not share its storage" in done.stderr


async def test_what_a_broker_knew_last_is_called_so(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(cluster) as http:
        for path in ("/v1/cluster", "/v1/brokers"):
            assert answered(await http.get(path))["current"] is True
        assert "does not reach the database" not in (await command(http, "status")).stderr
        monkeypatch.setattr(Lease, "is_cut_off", True)
        for path in ("/v1/cluster", "/v1/brokers"):
            assert answered(await http.get(path))["current"] is False
        assert "does not reach the database" in (await command(http, "status")).stderr
        where = http.base_url.netloc.decode()
        listed = await asyncio.to_thread(inside, "broker", "list", admin=where)
        assert "does not reach the database" in listed.stderr


async def test_who_may_look_and_change() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "ann") as http:
        answered(await http.get("/v1/cluster"), 403)
        answered(await http.post("/v1/cluster/brokers/b1/drain"), 403)
        answered(await http.post("/v1/cluster/brokers/b1/undrain"), 403)
        answered(await http.post("/v1/cluster/scopes/groups%2F07/move", json={}), 403)


async def command(http: httpx.AsyncClient, *words: str) -> Any:
    return await asyncio.to_thread(inside, "cluster", *words, admin=http.base_url.netloc.decode())


async def test_the_commands(cluster: FakeCluster) -> None:
    async with served(cluster) as http:
        done = await command(http, "move", "groups/07", "b1")
        assert "groups/07 moves to broker b1" in done.stderr
        done = await command(http, "status")
        assert [line.split()[:4] for line in done.stdout.splitlines()[1:]] == [
            ["1", "b1", "ready", "81"],
            ["2", "b2", "ready", "80"],
        ]
        assert "groups/07 was moved to b1" in done.stderr
        done = await command(http, "move", "groups/07", "--json")
        assert json.loads(done.stdout) == {"scope": "groups/07", "broker": None}
        done = await command(http, "drain", "b2")
        assert (done.returncode, done.stderr.strip()) == (0, "broker b2 holds no scopes any more")
        done = await command(http, "status")
        assert (
            "coordinator groups/00-63 transactions/00-63 namespaces/00-15 housekeeping/00-15" in done.stdout
        )
        done = await command(http, "undrain", "b2", "--json")
        assert json.loads(done.stdout) == {"broker": "b2", "draining": False}
        done = await command(http, "drain", "b9")
        assert (done.returncode, "no broker has registered as 'b9'" in done.stderr) == (1, True)


async def test_a_drain_that_takes_longer_than_one_waits(cluster: FakeCluster) -> None:
    cluster.is_obeyed = False
    async with served(cluster) as http:
        done = await command(http, "drain", "b2", "--wait", "0.1", "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout) == {"broker": "b2", "draining": True, "scopes": 80}
        done = await command(http, "drain", "b2", "--wait", "0")
        assert (done.returncode, done.stderr.strip()) == (0, "broker b2 is draining")


async def test_scopes_without_a_broker_are_shown(cluster: FakeCluster) -> None:
    cluster.view = replace(cluster.view, holders={GROUPS[0]: incarnation(2)}, wanted={GROUPS[3]: 9})
    async with served(cluster) as http:
        done = await command(http, "status")
        assert (
            "without a broker: groups/01-63 transactions/00-63 namespaces/00-15 housekeeping/00-15"
            in done.stderr
        )
        assert "groups/03 was moved to the broker with id 9, which is not alive" in done.stderr
