"""Namespaces by HTTP, where two brokers serve them: calls reach the right one, and lists have all."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from posthouse.app import App
from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.funnel.limits import UNLIMITED, DeliveryLimits
from posthouse.broker.queues.queue import Queue
from posthouse.broker.topics import NewTopic
from posthouse.model.brokers import ClusterView
from posthouse.model.scopes import GROUPS, NAMESPACES, Scope, scope_of_namespace
from posthouse.protocols.admin.endpoints import ENDPOINTS
from posthouse.protocols.admin.handlers.queues import LISTED, Counters, QueueSummary
from posthouse.protocols.admin.other_brokers import Caller, OtherBrokers
from posthouse.protocols.admin.paging import Page, Paging
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.membership import Membership
from posthouse.records.record import iter_records
from posthouse.settings import Authentication
from tests.protocols.admin.clients import answered
from tests.protocols.kafka.members import COORDINATOR, OWN
from tests.protocols.kafka.two_brokers import TwoBrokers, two_brokers

PASSWORD = "secret"
HERE = "/"
THERE = next(
    name
    for name in (f"shop{number}" for number in range(99))
    if scope_of_namespace(name) != scope_of_namespace(HERE)
)
"""The namespaces of the coordinator, and of the member."""


def _scope(namespace: str) -> Scope:
    return scope_of_namespace(namespace)


def _scope_holder(brokers: TwoBrokers, scope: Scope) -> App:
    return brokers.member if scope == _scope(THERE) else brokers.coordinator


@asynccontextmanager
async def _brokers(**settings: Any) -> AsyncIterator[TwoBrokers]:
    async with two_brokers(namespaces=(THERE,), **settings) as made:
        for scope in (*NAMESPACES, *GROUPS):
            await made.hold(scope, _scope_holder(made, scope))
        yield made


@pytest.fixture
async def brokers() -> AsyncIterator[TwoBrokers]:
    async with _brokers() as made:
        yield made


@pytest.fixture
async def http(brokers: TwoBrokers) -> AsyncIterator[httpx.AsyncClient]:
    async with _client(brokers.coordinator) as client:
        yield client


async def test_records_for_a_topic_that_feeds_queues_go_to_the_broker_of_the_queues(
    brokers: TwoBrokers, http: httpx.AsyncClient
) -> None:
    await _declare(http, THERE, "q")
    namespace = brokers.member.broker.namespaces.get(THERE)
    name = namespace.topic_of("q")
    await brokers.member.broker.create_topics([NewTopic(name=name, partitions=1)])
    record = {"records": [{"value": "hello"}]}
    produced = await http.post(f"/v1/topics/{name}/records", json=record)
    assert produced.status_code == 200, produced.text
    assert namespace.queues["q"].message_count == 1
    trimmed = await http.post(f"/v1/topics/{name}/trim", json={})
    assert (trimmed.status_code, trimmed.json()["partitions"][0]["start"]) == (200, 1), trimmed.text
    assert (await http.post("/v1/topics/unknown/records", json=record)).status_code == 404


async def test_values_and_idempotency_keys_go_there_as_they_are(
    brokers: TwoBrokers, http: httpx.AsyncClient
) -> None:
    await _declare(http, THERE, "q")
    member = brokers.member.broker
    namespace = member.namespaces.get(THERE)
    name = namespace.topic_of("q")
    await member.create_topics([NewTopic(name=name, partitions=1)])
    headers = {"content-type": "image/png", "posthouse-header-trace": "7", "idempotency-key": "k"}
    path = f"/v1/topics/{name}/records"
    first, again = [await http.post(path, content=b"\xff", headers=headers) for _ in range(2)]
    assert (first.status_code, again.json()) == (200, first.json() | {"repeated": True}), first.text
    assert (await http.post(path, content=b"\xfe", headers=headers)).status_code == 422
    assert namespace.queues["q"].message_count == 1
    event = {f"ce-{each}": "1.0" for each in ("specversion", "id", "source", "type")}
    assert (await http.post(path, content=b"{}", headers=event)).status_code == 200
    headers_of: list[dict[str, bytes | None]] = []
    for offset in range(2):
        read = await member.read(member.topic(name), 0, offset, 1)
        headers_of += [dict(record.headers) for record in iter_records(read.data)]
    assert headers_of[0] == {"trace": b"7", "content-type": b"image/png"}
    assert headers_of[1] == {f"ce_{each}": b"1.0" for each in ("specversion", "id", "source", "type")}


@asynccontextmanager
async def _client(app: App, user: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    auth = None if user is None else (user, PASSWORD)
    async with httpx.AsyncClient(base_url=f"http://{app.listeners['admin']}", auth=auth, timeout=30) as made:
        yield made


def _path(namespace: str, *rest: str) -> str:
    return "/".join(quote(each, safe="") for each in (namespace, *rest))


async def _declare(http: httpx.AsyncClient, namespace: str, *queues: str) -> None:
    for each in queues:
        answered(await http.put(f"/api/queues/{_path(namespace, each)}", json={}), 201)


async def _publish(http: httpx.AsyncClient, namespace: str, queue: str, payload: str = "hello") -> None:
    body = {"properties": {}, "routing_key": queue, "payload": payload, "payload_encoding": "string"}
    published = await http.post(f"/api/exchanges/{_path(namespace, 'amq.default')}/publish", json=body)
    assert answered(published) == {"routed": True}


def _queues(app: App) -> dict[str, list[str]]:
    """Those that the broker serves."""
    return {each.name: sorted(each.queues) for each in app.broker.namespaces if each.queues}


async def _without_holder(brokers: TwoBrokers) -> None:
    """The namespaces of the member move."""
    scope = _scope(THERE)
    await brokers.member.broker.release_scope(scope)
    left = {each: holder for each, holder in brokers.view.holders.items() if each != scope}
    brokers.view = replace(brokers.view, holders=left)


# The JSON API


async def test_limits_of_a_queue_of_the_other_broker(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    await _declare(http, THERE, "mails")
    path = f"/v1/queues/{_path(THERE, 'mails')}"
    answered(await http.put(f"{path}/limits", json={"rate": 20, "concurrency": 3}), 204)
    queue = brokers.member.broker.namespaces.get(THERE).queues["mails"]
    assert isinstance(queue, Queue)
    assert queue.limits == DeliveryLimits(rate=20, concurrency=3)
    assert answered(await http.get(path))["limits"]["concurrency"] == 3
    answered(await http.delete(f"{path}/limits"), 204)
    assert queue.limits == UNLIMITED


async def test_a_queue_of_the_other_broker(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    await _declare(http, THERE, "mails", "late")
    assert (_queues(brokers.coordinator), _queues(brokers.member)) == ({}, {THERE: ["late", "mails"]})
    await _publish(http, THERE, "mails")
    described = answered(await http.get(f"/v1/queues/{_path(THERE, 'mails')}"))
    assert (described["namespace"], described["ready"]) == (THERE, 1)
    [peeked] = answered(await http.get(f"/v1/queues/{_path(THERE, 'mails')}/messages"))["messages"]
    assert peeked["body"]["data"] == "hello"
    moved = answered(await http.post(f"/v1/queues/{_path(THERE, 'mails')}/move", json={"to": "late"}))
    assert moved["to"] == {"late": 1}
    purged = answered(await http.post(f"/v1/queues/{_path(THERE, 'late')}/purge"))
    assert purged == {"messages": 1}
    answered(await http.delete(f"/v1/queues/{_path(THERE, 'mails')}"), 204)
    assert _queues(brokers.member) == {THERE: ["late"]}
    missing = await http.get(f"/v1/queues/{_path(THERE, 'mails')}")
    assert missing.status_code == 404 and missing.headers["content-type"] == "application/problem+json"


def test_calls_with_a_namespace_go_to_its_holder() -> None:
    """All of them: it is their parameter that says so."""
    found = [
        each.path
        for each in ENDPOINTS
        if "namespace" in each.path or "namespace" in each.parameters.__struct_fields__
    ]
    assert {"/v1/queues", "/v1/exchanges", "/v1/bindings"} <= set(found) and len(found) >= 9
    assert all(
        "namespace" in each.parameters.__struct_fields__ for each in ENDPOINTS if "{namespace}" in each.path
    )


async def test_a_namespace_stays_while_a_call_works_on_it(
    brokers: TwoBrokers, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _declare(http, HERE, "mails")
    queue = brokers.coordinator.broker.namespaces.get(HERE).queue_of_any_session("mails")
    begun, goes_on = asyncio.Event(), asyncio.Event()
    peek = queue.peek

    async def slow(most: int) -> Any:
        begun.set()
        await goes_on.wait()
        return await peek(most)

    monkeypatch.setattr(queue, "peek", slow)
    peeking = asyncio.create_task(http.get(f"/v1/queues/{_path(HERE, 'mails')}/messages"))
    await begun.wait()
    moving = asyncio.create_task(brokers.hold(_scope(HERE), brokers.member))
    done, _ = await asyncio.wait([moving], timeout=0.1)
    assert not done
    goes_on.set()
    assert answered(await peeking)["messages"] == []
    await moving


async def test_lists_have_what_all_brokers_serve(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    names = [f"q{number}" for number in range(5)]
    await _declare(http, HERE, *names)
    await _declare(http, THERE, *names)
    whole = answered(await http.get("/v1/queues"))
    everything = [(namespace, name) for namespace in (HERE, THERE) for name in names]
    assert [(each["namespace"], each["name"]) for each in whole["items"]] == everything
    assert (whole["total"], whole["next"]) == (10, None)
    assert await _paged(http, "/v1/queues") == everything
    assert await _paged(http, "/v1/queues", namespace=THERE) == everything[5:]
    assert await _paged(http, "/v1/queues", namespace=HERE) == everything[:5]
    assert await _paged(http, "/v1/queues", search="3") == [(HERE, "q3"), (THERE, "q3")]
    assert (await http.get("/v1/queues?namespace=none")).status_code == 404


async def _paged(http: httpx.AsyncClient, path: str, **query: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    after = ""
    while after is not None:
        page = answered(await http.get(path, params={"limit": "3", "after": after, **query}))
        assert len(page["items"]) <= 3
        found += [(each["namespace"], each["name"]) for each in page["items"]]
        after = page["next"]
    return found


async def test_exchanges_and_bindings_of_all_brokers(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    for namespace in (HERE, THERE):
        await _declare(http, namespace, "q")
        answered(await http.put(f"/api/exchanges/{_path(namespace, 'news')}", json={"type": "topic"}), 201)
        for key in ("a", "b"):
            bound = await http.post(
                f"/api/bindings/{_path(namespace, 'e', 'news', 'q', 'q')}", json={"routing_key": key}
            )
            assert bound.headers["location"] == f"q/{key}" and bound.status_code == 201
    found = await _paged(http, "/v1/exchanges", search="news")
    assert found == [(HERE, "news"), (THERE, "news")]
    bindings = answered(await http.get("/v1/bindings"))["items"]
    assert [(each["namespace"], each["key"]) for each in bindings] == [
        *_sorted_keys(bindings, HERE),
        *_sorted_keys(bindings, THERE),
    ]
    assert len({each["id"] for each in bindings}) == 4
    pages = [answered(await http.get("/v1/bindings?limit=3"))]
    pages.append(answered(await http.get("/v1/bindings", params={"after": pages[0]["next"]})))
    assert [each for page in pages for each in page["items"]] == bindings


def _sorted_keys(bindings: Sequence[dict[str, Any]], namespace: str) -> list[tuple[str, str]]:
    """Their order is that of a hash."""
    found = [(namespace, each["key"]) for each in bindings if each["namespace"] == namespace]
    assert sorted(found) == [(namespace, "a"), (namespace, "b")]
    return found


async def test_lists_that_would_lack_a_namespace_are_refused(
    brokers: TwoBrokers, http: httpx.AsyncClient
) -> None:
    await _without_holder(brokers)
    for path in ("/v1/queues", "/v1/bindings", "/v1/overview", "/v1/connections", "/v1/disk"):
        refused = await http.get(path)
        assert refused.status_code == 503 and "namespaces move" in refused.json()["detail"], path
    for path in ("/api/queues", "/api/queues?page=1", "/api/overview", "/api/definitions", "/api/channels"):
        refused = await http.get(path)
        assert refused.status_code == 503 and "namespaces move" in refused.json()["reason"], path
    assert answered(await http.get(f"/v1/queues?namespace={_path(HERE)}"))["items"] == []
    assert answered(await http.get(f"/api/queues/{_path(HERE)}")) == []


async def test_a_broker_that_has_less_than_it_should_is_not_believed(
    brokers: TwoBrokers, http: httpx.AsyncClient
) -> None:
    """The coordinator has an old view: the member is reached, and has given up one of its scopes."""
    kept = next(scope for scope in NAMESPACES if scope not in (_scope(HERE), _scope(THERE)))
    await brokers.hold(kept, brokers.member)
    await _declare(http, THERE, "mails")
    assert await _names(http, "/api/queues") == ["mails"]
    await brokers.member.broker.release_scope(_scope(THERE))
    for path in (
        "/v1/queues",
        "/v1/overview",
        "/v1/disk",
        "/api/queues",
        "/api/queues?page=1",
        "/api/overview",
    ):
        assert (await http.get(path)).status_code == 503, path


def test_parts_are_of_no_use_if_this_broker_has_got_or_lost_one() -> None:
    first, second, third = NAMESPACES[:3]
    view = ClusterView(brokers=(OWN, COORDINATOR), holders={third: COORDINATOR.incarnation})
    held = {first}
    others = OtherBrokers(None, Membership(own=OWN, view=lambda: view), lambda scope: scope in held)
    parts = others.parts((first, third), "namespaces", Caller(listener="admin"))
    assert len(parts.others) == 1
    parts.check()
    for now in (set(), {first, third}):
        held.clear()
        held.update(now)
        with pytest.raises(Problem, match="some namespaces move"):
            parts.check()
    held.update({first})
    with pytest.raises(Problem, match="some namespaces move"):
        others.parts((first, second), "namespaces", Caller(listener="admin"))


async def test_the_overview_adds_up(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    before = answered(await http.get("/v1/overview"))
    await _declare(http, HERE, "a")
    await _declare(http, THERE, "b", "c")
    await _publish(http, THERE, "c")
    overview = answered(await http.get("/v1/overview"))
    assert (overview["namespaces"], overview["queues"]) == (2, 3)
    assert overview["exchanges"] == before["exchanges"] and overview["connections"] == 1
    assert overview["traffic"]["published"] == before["traffic"]["published"] + 1
    assert overview["traffic"]["records_in"] == before["traffic"]["records_in"] + 1


async def test_the_disk_has_the_queues_of_all_brokers(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    await _declare(http, HERE, "a")
    await _declare(http, THERE, "b", "c")
    report = answered(await http.get("/v1/disk"))
    assert sorted(
        (each["namespace"], each["name"]) for each in report["logs"] if each["kind"] == "queue"
    ) == [
        (HERE, "a"),
        (THERE, "b"),
        (THERE, "c"),
    ]
    assert all(each["kind"] != "internal" for each in report["logs"])
    assert report["logs_total"] == len(report["logs"])
    assert report["logs_bytes"] == sum(each["bytes"] for each in report["logs"])
    paged: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = answered(await http.get(f"/v1/disk?limit=2&after={after}"))
        paged += page["logs"]
        after = page["next"]
    assert paged == report["logs"]


async def test_events_of_all_brokers(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    kinds = "queues,exchanges,bindings,connections,overview"
    async with http.stream("GET", "/v1/events", params={"topics": kinds}) as stream:
        lines = stream.aiter_lines()
        await _until(lines, "event: ready")
        async with _client(brokers.coordinator) as other:
            await _declare(other, THERE, "mails")
            found = await _until(lines, "mails")
            [added] = json.loads(found.removeprefix("data:"))["added"]
            assert (added["namespace"], added["name"], added["ready"]) == (THERE, "mails", 0)
            answered(await other.delete(f"/v1/queues/{_path(THERE, 'mails')}"), 204)
            found = await _until(lines, "mails")
            assert json.loads(found.removeprefix("data:"))["removed"] == [f"{THERE}/mails"]


async def _until(lines: AsyncIterator[str], wanted: str) -> str:
    async with asyncio.timeout(30):
        async for line in lines:
            if wanted in line:
                return line
    raise AssertionError(f"no {wanted}")


# Connections


@asynccontextmanager
async def _connection(app: App, listener: str) -> AsyncIterator[str]:
    """The address of a client that has only connected."""
    address, served = app.listeners[listener], app.listener(listener)
    assert served is not None
    _, writer = await asyncio.open_connection(address.host, address.port)
    host, port = writer.get_extra_info("sockname")
    try:
        async with asyncio.timeout(30):
            while all(each.peer != f"{host}:{port}" for each in served):
                await asyncio.sleep(0.01)
        yield f"{host}:{port}"
    finally:
        writer.close()


async def test_connections_of_all_brokers(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    async with (
        _connection(brokers.coordinator, "kafka") as here,
        _connection(brokers.member, "kafka") as there,
    ):
        found = answered(await http.get("/v1/connections"))
        of_kafka = {each["peer"] for each in found["items"] if each["listener"] == "kafka"}
        assert of_kafka == {here, there}
        assert found["total"] == len(found["items"]) == 3, "those between the brokers are not among them"
        assert answered(await http.get(f"/v1/connections/{there}"))["peer"] == there
        answered(await http.delete(f"/v1/connections/{there}"), 204)
        assert (await http.get("/v1/connections/10.0.0.1:1")).status_code == 404
        async with asyncio.timeout(30):
            while answered(await http.get("/v1/connections"))["total"] > 2:
                await asyncio.sleep(0.01)


async def test_amqp_connections_of_all_brokers(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    async with _connection(brokers.coordinator, "amqp") as here, _connection(brokers.member, "amqp") as there:
        names = await _names(http, "/api/connections")
        assert [each.partition(" -> ")[0] for each in names] == [here, there]
        assert answered(await http.get(f"/api/connections/{_path(names[1])}"))["name"] == names[1]
        assert answered(await http.get(f"/api/connections/{_path(names[1])}/channels")) == []
        assert answered(await http.get("/api/channels")) == []
        missing = await http.get("/api/connections/10.0.0.1:1")
        assert missing.status_code == 404 and missing.json()["reason"] == "Not Found"
        answered(await http.delete(f"/api/connections/{_path(names[1])}"), 204)
        async with asyncio.timeout(30):
            while len(await _names(http, "/api/connections")) > 1:
                await asyncio.sleep(0.01)


# RabbitMQ's management API


async def test_messages_of_the_other_broker(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    await _declare(http, THERE, "mails")
    await _publish(http, THERE, "mails")
    body = {"count": 5, "ackmode": "ack_requeue_false", "encoding": "auto"}
    [got] = answered(await http.post(f"/api/queues/{_path(THERE, 'mails')}/get", json=body))
    assert got["payload"] == "hello"
    refused = await http.get(f"/api/queues/{_path(THERE, 'none')}")
    assert refused.status_code == 404 and refused.json() == {
        "error": "Object Not Found",
        "reason": "Not Found",
    }
    assert (await http.get("/api/queues/none")).status_code == 404
    assert answered(await http.get(f"/api/aliveness-test/{THERE}")) == {"status": "ok"}


async def _names(http: httpx.AsyncClient, path: str, **query: str) -> list[str]:
    found = answered(await http.get(path, params=query))
    rows = found if isinstance(found, list) else found["items"]
    return [each["name"] for each in rows]


async def test_whole_lists(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    await _declare(http, HERE, "b", "d")
    await _declare(http, THERE, "a", "c")
    assert await _names(http, "/api/queues") == ["b", "d", "a", "c"]
    assert await _names(http, "/api/queues", sort="name") == ["a", "b", "c", "d"]
    assert await _names(http, "/api/queues", sort="name", sort_reverse="true") == ["d", "c", "b", "a"]
    rows = answered(await http.get("/api/queues?columns=name&sort=vhost&sort_reverse=true"))
    assert rows == [{"name": name} for name in ("a", "c", "b", "d")]
    assert await _names(http, f"/api/queues/{THERE}") == ["a", "c"]
    assert await _names(http, f"/api/queues/{_path(HERE)}") == ["b", "d"]
    assert sorted(await _names(http, "/api/vhosts")) == [HERE, THERE]
    assert len(answered(await http.get("/api/exchanges?columns=vhost"))) == 2 * len(
        answered(await http.get(f"/api/exchanges/{THERE}"))
    )
    bindings = answered(await http.get("/api/bindings"))
    assert sorted(each["destination"] for each in bindings) == ["a", "b", "c", "d"]


async def test_pages_of_lists(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    here, there = [f"h{number}" for number in range(4)], [f"t{number}" for number in range(3)]
    await _declare(http, HERE, *here)
    await _declare(http, THERE, *there)
    whole = await _names(http, "/api/queues")
    assert whole == here + there
    pages = [await _page(http, page=number, page_size=3) for number in (1, 2, 3)]
    assert [name for page in pages for name in page] == whole
    pages = [
        await _page(http, page=number, page_size=3, sort="name", sort_reverse="true") for number in (1, 2, 3)
    ]
    assert [name for page in pages for name in page] == sorted(whole, reverse=True)
    counts = answered(await http.get("/api/queues?page=2&page_size=2&name=%5B12%5D&use_regex=true&sort=name"))
    assert [each["name"] for each in counts.pop("items")] == ["t1", "t2"]
    assert counts == {
        "total_count": 7,
        "item_count": 2,
        "filtered_count": 4,
        "page": 2,
        "page_size": 2,
        "page_count": 2,
    }
    beyond = await http.get("/api/queues?page=4&page_size=3")
    assert beyond.status_code == 400 and beyond.json()["error"] == "page_out_of_range"
    wrong = await http.get("/api/queues?page=1&use_regex=true&name=(")
    assert wrong.status_code == 400 and wrong.json()["error"] == "bad_request"


async def _page(http: httpx.AsyncClient, **query: Any) -> list[str]:
    found = answered(await http.get("/api/queues", params=query))
    assert (found["total_count"], found["filtered_count"], found["page_count"]) == (7, 7, 3)
    return [each["name"] for each in found["items"]]


async def test_totals_of_all_brokers(brokers: TwoBrokers, http: httpx.AsyncClient) -> None:
    await _declare(http, HERE, "a")
    await _declare(http, THERE, "b")
    await _publish(http, HERE, "a")
    await _publish(http, THERE, "b")
    overview = answered(await http.get("/api/overview"))
    assert overview["object_totals"]["queues"] == 2
    assert overview["queue_totals"]["messages_ready"] == 2
    assert overview["message_stats"]["publish"] == 2
    assert overview["message_stats"]["publish_details"]["rate"] >= 0
    vhost = answered(await http.get(f"/api/vhosts/{THERE}"))
    assert (vhost["name"], vhost["messages"]) == (THERE, 1)


async def test_definitions_go_to_the_brokers_that_serve_their_virtual_hosts(
    brokers: TwoBrokers, http: httpx.AsyncClient
) -> None:
    declared: dict[str, dict[str, Any]] = {
        "exchanges": {"name": "news", "type": "fanout"},
        "queues": {"name": "mails", "durable": True},
        "bindings": {"source": "news", "destination": "mails", "destination_type": "queue"},
    }
    document = {kind: [each | {"vhost": vhost} for vhost in (HERE, THERE)] for kind, each in declared.items()}
    answered(await http.post("/api/definitions", json=document), 204)
    assert (_queues(brokers.coordinator), _queues(brokers.member)) == ({HERE: ["mails"]}, {THERE: ["mails"]})
    exported = answered(await http.get("/api/definitions"))
    assert [each["name"] for each in exported["vhosts"]] == [HERE, THERE]
    for kind in ("exchanges", "queues", "bindings"):
        assert [each["vhost"] for each in exported[kind]] == [HERE, THERE], kind
    answered(await http.post("/api/definitions", json=exported), 204)
    of_one = answered(await http.get(f"/api/definitions/{THERE}"))
    assert of_one["queues"] == [{"name": "mails", "durable": True, "auto_delete": False, "arguments": {}}]
    different = {"queues": [{"name": "mails", "vhost": THERE, "arguments": {"x-max-length": 5}}]}
    refused = await http.post("/api/definitions", json=different)
    assert refused.status_code == 400 and "inequivalent" in refused.json()["reason"]
    unknown = await http.post("/api/definitions", json={"queues": [{"name": "q", "vhost": "none"}]})
    assert unknown.status_code == 400 and "no_such_vhost" in unknown.json()["reason"]


# Logins


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[TwoBrokers]:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(PASSWORD)
    async with _brokers(authentication=Authentication.REQUIRED, admin_password_file=file) as made:
        await made.coordinator.broker.access.users.set_password("ann", PASSWORD)
        await made.member.broker.refresh_definitions()
        yield made


async def test_permissions_in_a_namespace_of_the_other_broker(guarded: TwoBrokers) -> None:
    async with _client(guarded.coordinator, "admin") as http:
        await _declare(http, THERE, "mails", "late")
        rights = {"configure": "^$", "write": "^$", "read": "^mails$"}
        permitted = await http.put(f"/api/permissions/{THERE}/ann", json=rights)
        assert permitted.status_code == 201
        shown = answered(await http.get(f"/api/permissions/{THERE}/ann"))
        assert shown == {"user": "ann", "vhost": THERE, "configure": "", "write": "", "read": "^mails$"}
        assert shown in answered(await http.get(f"/api/vhosts/{THERE}/permissions"))
        assert (await http.get("/api/permissions/none/ann")).status_code == 404
        answered(await http.put(f"/api/vhosts/{THERE}"), 204)
    await guarded.member.broker.refresh_definitions()
    async with _client(guarded.coordinator, "ann") as http:
        assert await _names(http, f"/api/queues/{THERE}") == ["mails"]
        assert await _names(http, "/api/queues") == ["mails"]
        assert (await http.get(f"/v1/queues/{THERE}/late")).status_code == 403
        assert (await http.delete(f"/v1/queues/{THERE}/mails")).status_code == 403
        assert (await http.get("/api/overview")).status_code == 401
    assert _queues(guarded.member) == {THERE: ["late", "mails"]}


async def test_a_user_without_a_permission_in_the_other_namespace(guarded: TwoBrokers) -> None:
    """It gets the same answer whether the namespace exists or not."""
    acl = Acl(kind=Kind.TOPIC, name="t", principal="User:ann", operation=Operation.DESCRIBE)
    await guarded.coordinator.broker.access.acls.add([acl])
    await guarded.member.broker.refresh_definitions()
    async with _client(guarded.coordinator, "ann") as http:
        for namespace in (THERE, "none"):
            assert (await http.get(f"/v1/queues?namespace={namespace}")).status_code == 403
            assert (await http.get(f"/api/queues/{namespace}")).status_code == 401
            assert (await http.get(f"/api/permissions/{namespace}/ann")).status_code == 401
        assert await _names(http, "/api/vhosts") == [HERE]


# Pages


def _summary(name: str) -> QueueSummary:
    counters = Counters(**dict.fromkeys(Counters.__struct_fields__, 0))
    return QueueSummary(
        namespace="/",
        name=name,
        kind="queue",
        durable=True,
        state="empty",
        ready=0,
        unacked=0,
        consumers=0,
        oldest_age_ms=None,
        counters=counters,
    )


def test_a_merged_page_goes_on_where_brokers_would() -> None:
    own = Page(items=[_summary("a"), _summary("c")], total=3, next="%2F/c")
    other = Page(items=[_summary("b")], total=1)
    merged = LISTED.merged([own, other], Paging(limit=2))
    assert [each.name for each in merged.items] == ["a", "b"]
    assert (merged.total, merged.next) == (4, "%2F/b")
