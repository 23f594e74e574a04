"""Subscriptions to clients' metrics, the clients that push them, and the file that they are written to."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.telemetry.clients import MOST_PER_CONNECTION, ClientMetrics, RequestedMetrics
from posthouse.broker.telemetry.export import MetricsFile
from posthouse.broker.telemetry.points import MetricKind, MetricPoint, PushedMetrics
from posthouse.broker.telemetry.subscriptions import ClientIdentity, MetricsSubscriptions
from posthouse.model.clock import ManualClock
from posthouse.model.errors import BadRequest, InvalidConfig, TooEarly, UnknownSubscription
from posthouse.storage.memory.engine import MemoryStorage


def client(number: int = 1, **fields: str) -> ClientIdentity:
    return ClientIdentity(client_instance_id=f"id-{number}", **fields)


def pushed(points: int = 1, time_ms: int = 5) -> PushedMetrics:
    point = MetricPoint(name="m", kind=MetricKind.GAUGE, value=1.5)
    return PushedMetrics(time_ms=time_ms, resource={"client_rack": "r"}, points=(point,) * points)


class Rig:
    def __init__(self, **limits: int) -> None:
        self.clock = ManualClock()
        self.storage = MemoryStorage(self.clock)
        self.subscriptions = MetricsSubscriptions(self.storage)
        self.exported: list[tuple[ClientIdentity, PushedMetrics]] = []
        self.clients = ClientMetrics(
            self.subscriptions, self.clock, lambda *each: self.exported.append(each), **limits
        )

    async def subscribe(self, name: str = "s", **settings: str) -> None:
        wanted = {key.replace("_", "."): value for key, value in settings.items()}
        await self.subscriptions.change(name, lambda _: wanted)

    def push(self, who: ClientIdentity, wanted: RequestedMetrics, **fields: Any) -> None:
        is_last = fields.pop("is_last", False)
        if self.clients.check_push(who, wanted.subscription_id, is_last=is_last):
            self.clients.keep(who, pushed(**fields))


@pytest.fixture
async def rig() -> Rig:
    rig = Rig()
    await rig.storage.open()
    return rig


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"interval.ms": "99"}, BadRequest),
        ({"interval.ms": "3600001"}, BadRequest),
        ({"interval.ms": "x"}, InvalidConfig),
        ({"nonsense": "x"}, BadRequest),
        ({"match": "client_id"}, InvalidConfig),
        ({"match": "nonsense=x"}, InvalidConfig),
        ({"match": "client_id=["}, InvalidConfig),
    ],
)
async def test_what_a_subscription_cannot_be(
    rig: Rig, settings: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await rig.subscriptions.change("s", lambda _: settings)
    assert list(rig.subscriptions) == []
    with pytest.raises(BadRequest):
        await rig.subscriptions.change("", lambda _: {"metrics": "*"})


async def test_without_subscriptions_nothing_is_asked_for(rig: Rig) -> None:
    wanted = rig.clients.ask(client())
    assert (wanted.metrics, wanted.interval_ms) == ((), 300_000)


async def test_all_subscriptions_that_fit_count(rig: Rig) -> None:
    await rig.subscribe("a", metrics="org.b, org.a", interval_ms="2000")
    await rig.subscribe("b", metrics="org.c", interval_ms="500", match="client_id=app-.*")
    other = rig.clients.ask(client(1, client_id="other"))
    assert (other.metrics, other.interval_ms) == (("org.a", "org.b"), 2000)
    app = rig.clients.ask(client(2, client_id="app-1"))
    assert (app.metrics, app.interval_ms) == (("org.a", "org.b", "org.c"), 500)
    assert app.subscription_id != other.subscription_id
    await rig.subscribe("c", metrics="*")
    assert rig.clients.ask(client(2, client_id="app-1")).metrics == ("*",)
    await rig.subscribe("a")
    await rig.subscribe("c")
    assert rig.clients.ask(client(1, client_id="other")).metrics == ()


async def test_a_client_pushes_once_in_an_interval(rig: Rig) -> None:
    await rig.subscribe(metrics="*", interval_ms="1000")
    me = client()
    wanted = rig.clients.ask(me)
    rig.push(me, wanted)
    with pytest.raises(TooEarly):
        rig.push(me, wanted)
    with pytest.raises(TooEarly):
        rig.clients.ask(me)
    rig.clock.advance(1)
    rig.push(me, wanted, time_ms=9)
    [instance] = rig.clients
    assert instance.last is not None
    assert instance.last.time_ms == 9
    assert len(rig.exported) == 2
    rig.push(me, wanted, is_last=True)
    with pytest.raises(BadRequest):
        rig.push(me, wanted, is_last=True)


async def test_a_change_of_subscriptions_is_told(rig: Rig) -> None:
    await rig.subscribe(metrics="*", interval_ms="1000")
    me = client()
    old = rig.clients.ask(me)
    await rig.subscribe(metrics="org", interval_ms="1000")
    with pytest.raises(UnknownSubscription):
        rig.push(me, old)
    new = rig.clients.ask(me)
    assert new.metrics == ("org",)
    rig.push(me, new)


async def test_the_table_is_bounded() -> None:
    rig = Rig(most=3, most_bytes=2 * pushed(points=4).size)
    await rig.storage.open()
    await rig.subscribe(metrics="*")
    for number in range(5):
        me = client(number)
        rig.push(me, rig.clients.ask(me), points=4)
    assert [each.identity.client_instance_id for each in rig.clients] == ["id-2", "id-3", "id-4"]
    assert [each.last is not None for each in rig.clients] == [False, True, True]


def test_attributes_and_texts_count_as_bytes() -> None:
    plain = PushedMetrics(time_ms=0, points=pushed().points)
    resource = PushedMetrics(time_ms=0, resource={f"a{n}": True for n in range(64)}, points=plain.points)
    assert resource.size > plain.size + 64 * 50
    [point] = plain.points
    long = replace(point, name="x" * 1000, unit="y" * 1000, attributes={"k": "v" * 1000})
    assert PushedMetrics(time_ms=0, points=(long,)).size > plain.size + 3000


async def test_what_no_subscription_asks_for_is_not_kept(rig: Rig) -> None:
    await rig.subscribe(metrics="*", match="client_id=app")
    other = client(1, client_id="other")
    rig.push(other, rig.clients.ask(other))
    [instance] = rig.clients
    assert instance.last is None
    assert rig.exported == []


async def test_a_connection_cannot_push_more_often_with_other_ids(rig: Rig) -> None:
    await rig.subscribe(metrics="*", interval_ms="1000")

    def push(number: int, port: str) -> None:
        me = client(number, client_source_address="10.0.0.1", client_source_port=port)
        rig.push(me, rig.clients.ask(me))

    for number in range(MOST_PER_CONNECTION):
        push(number, port="1")
    for number in (100, 101):
        with pytest.raises(TooEarly):
            push(number, port="1")
    push(102, port="2")
    assert len(rig.clients) == MOST_PER_CONNECTION + 1
    rig.clock.advance(1)
    push(100, port="1")
    assert "id-0" not in {each.identity.client_instance_id for each in rig.clients}
    push(1, port="2")
    push(101, port="1")
    assert len(rig.clients) == MOST_PER_CONNECTION + 2


async def test_subscriptions_are_stored() -> None:
    rig = Rig()
    await rig.storage.open()
    await rig.subscribe("one", metrics="org.a")
    state = {b"one": b'{"metrics": "org.a"}'}
    rig.storage.take_state = lambda space, owner=None: state  # type: ignore[method-assign]
    again = MetricsSubscriptions(rig.storage)
    again.load()
    assert [each.metrics for each in again] == [frozenset({"org.a"})]
    assert list(again.own) == ["one"]


def test_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, most_bytes=1000)
    file.open()
    for number in range(12):
        file.write(client(number), pushed())
    file.close()
    assert path.stat().st_mode & 0o777 == 0o600
    lines = [*path.with_name("metrics.jsonl.1").read_text().splitlines(), *path.read_text().splitlines()]
    assert path.stat().st_size <= 1000
    last = json.loads(lines[-1])
    assert last == {
        "time_ms": 5,
        "client_instance_id": "id-11",
        "client_id": "",
        "client_software_name": "",
        "client_software_version": "",
        "client_source_address": "",
        "client_source_port": "",
        "resource": {"client_rack": "r"},
        "metrics": [{"name": "m", "kind": "gauge", "value": 1.5, "time_ms": 0}],
    }


def test_what_waits_for_the_file_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    big = pushed(points=100)
    file = MetricsFile(path, most_waiting_bytes=3 * (big.size + 1000))
    begun, go_on = threading.Event(), threading.Event()
    append = file._append

    def slow(to: Path, line: bytes) -> None:
        begun.set()
        go_on.wait()
        append(to, line)

    monkeypatch.setattr(file, "_append", slow)
    file.open()
    file.write(client(0), big)
    assert begun.wait(30)
    for number in range(1, 6):
        file.write(client(number), big)
    go_on.set()
    file.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["client_instance_id"] for line in lines] == ["id-0", "id-1", "id-2"]
    assert "3 pushes are dropped" in caplog.text


def test_no_file(tmp_path: Path) -> None:
    file = MetricsFile(None)
    file.open()
    file.write(client(), pushed())
    file.close()
    with pytest.raises(InvalidConfig, match="client_metrics=off"):
        MetricsFile(tmp_path).open()
