"""RabbitMQ's management API: what tools read and send, in detail."""

import asyncio
import json
from functools import partial
from pathlib import Path

import httpx
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.protocols.admin import rates
from posthouse.protocols.admin.management.queues import QUICK
from posthouse.testing import AsyncBroker
from tests.protocols.admin.conftest import Scene
from tests.protocols.admin.management_calls import GET, PUBLISH, Q, publish
from tests.protocols.admin.many_queues import add_queues
from tests.protocols.admin.turn_times import MOST_SECONDS, shortest_of_longest_turns

_REGEX = "/api/queues?page=1&use_regex=true"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error", "reason"),
    [
        ("GET", "/api/nothing", None, 404, "Object Not Found", "Not Found"),
        ("GET", "/api/queues/none", None, 404, "Object Not Found", "Not Found"),
        ("GET", Q, None, 404, "Object Not Found", "Not Found"),
        ("GET", "/api/queues?page=x", None, 400, "bad_request", "Pagination parameters are invalid"),
        ("GET", "/api/queues?page=7", None, 400, "page_out_of_range", "Page out of range, page: 7"),
        ("GET", f"{_REGEX}&name=(a", None, 400, "bad_request", "missing )"),
        ("GET", f"{_REGEX}&name={'a' * 251}", None, 400, "bad_request", "may have 250 characters"),
        ("GET", f"{_REGEX}&name={'((((a{99}){99}){99}){99})'}", None, 400, "bad_request", "repetition"),
        ("PUT", Q, b"{", 400, "bad_request", "not_json"),
        ("PUT", Q, b"[]", 400, "bad_request", "not_json"),
        ("PUT", Q, b'{"durable": "perhaps"}', 400, "bad_request", "not a boolean"),
        (
            "PUT",
            Q,
            b'{"arguments": {"x-max-length": "3"}}',
            400,
            "bad_request",
            "expected integer",
        ),
        ("PUT", Q, b'{"arguments": {"x": null}}', 400, "bad_request", "null_not_allowed"),
        ("PUT", "/api/queues/%2F/" + "q" * 300, b"{}", 400, "bad_request", "255 bytes"),
        (
            "PUT",
            "/api/exchanges/%2F/x",
            b'{"type": "foo"}',
            400,
            "bad_request",
            "invalid exchange type 'foo'",
        ),
        ("PUT", "/api/exchanges/%2F/amq.x", b"{}", 401, "not_authorised", "reserved prefix"),
        ("DELETE", "/api/exchanges/%2F/amq.direct", None, 401, "not_authorised", "system exchange"),
        ("POST", "/api/bindings/%2F/e/none/q/q", b"{}", 404, "not_found", "no exchange 'none'"),
        ("POST", PUBLISH, b'{"payload": "x"}', 400, "bad_request", "{key_missing,properties}"),
        ("POST", f"{Q}/get", b'{"count": 1}', 400, "bad_request", "{key_missing,ackmode}"),
        ("POST", "/api/definitions", b'{"queues": [{"vhost": "no"}]}', 400, "bad_request", "no_such_vhost"),
        ("PATCH", "/api/queues", None, 405, "method_not_allowed", "PATCH"),
    ],
    ids=lambda each: each[:40].decode() if isinstance(each, bytes) else str(each)[:40],
)
async def test_errors_are_those_of_rabbitmq(
    scene: Scene, method: str, path: str, body: bytes | None, status: int, error: str, reason: str
) -> None:
    headers = {} if body is None else {"content-type": "application/json"}
    answer = await scene.http.request(method, path, content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (status, error)
    assert reason in answer.json()["reason"]


async def test_a_declaration_says_whether_it_is_new(scene: Scene) -> None:
    for status in (201, 204):
        assert (await scene.http.put(Q, json={"durable": True})).status_code == status
        answer = await scene.http.put("/api/exchanges/%2F/x", json={"type": "topic"})
        assert answer.status_code == status
    refused = await scene.http.put(Q, json={"durable": False})
    assert refused.json()["reason"] == (
        "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"
    )
    assert (await scene.http.delete(f"{Q}?if-empty=true&if-unused=true")).status_code == 204


async def test_pages_columns_and_filters(scene: Scene) -> None:
    for name in ("alpha", "beta", "gamma"):
        await scene.http.put(f"/api/queues/%2F/{name}", json={})
    page = (await scene.http.get("/api/queues?page=2&page_size=2&columns=name,message_stats.publish")).json()
    assert page == {
        "total_count": 3,
        "item_count": 1,
        "filtered_count": 3,
        "page": 2,
        "page_size": 2,
        "page_count": 2,
        "items": [{"name": "gamma", "message_stats": {"publish": 0}}],
    }
    assert len((await scene.http.get("/api/queues/")).json()) == 3
    assert (await scene.http.get("/api/queues//")).status_code == 404
    for query, names in (
        ("page=1&name=A", ["alpha", "beta", "gamma"]),
        ("page=1&name=et", ["beta"]),
        ("page=1&name=^.[ea]&use_regex=true", ["beta", "gamma"]),
        ("pagination=true&page_size=1", ["alpha"]),
        ("page=1&use_regex=true&pagination=false&name=^.*a$&page_size=100", ["alpha", "beta", "gamma"]),
    ):
        found = (await scene.http.get(f"/api/queues?{query}")).json()
        assert [each["name"] for each in found["items"]] == names


@pytest.mark.parametrize("pattern", [".?" * 60, "(a*)*b", "(a|aa)+$", "a*" * 100])
async def test_no_pattern_holds_up_the_broker(scene: Scene, pattern: str) -> None:
    await scene.http.put(f"/api/queues/%2F/{'a' * 200}", json={})
    answer = await scene.http.get(_REGEX, params={"page": 1, "use_regex": "true", "name": pattern})
    assert answer.status_code == 200


async def test_bindings_are_found_by_both_ends(scene: Scene) -> None:
    await scene.http.put(Q, json={})
    await scene.http.put("/api/exchanges/%2F/x", json={"type": "topic"})
    made = await scene.http.post(
        "/api/bindings/%2F/e/x/q/q", json={"routing_key": "a.#/b", "arguments": {"z": 1}}
    )
    assert made.status_code == 201
    place = f"/api/bindings/%2F/e/x/q/{made.headers['location']}"
    [binding] = (await scene.http.get("/api/bindings/%2F/e/x/q/q")).json()
    assert binding["properties_key"].startswith("a.%23%2Fb~")
    assert (await scene.http.get(place)).json() == binding
    await scene.http.post("/api/bindings/%2F/e/x/e/amq.fanout", json={})
    for path, count in (
        ("/api/bindings", 3),
        ("/api/bindings/%2F", 3),
        (f"{Q}/bindings", 2),
        ("/api/exchanges/%2F/x/bindings/source", 2),
        ("/api/exchanges/%2F/x/bindings/destination", 0),
        ("/api/exchanges/%2F/amq.fanout/bindings/destination", 1),
        ("/api/bindings/%2F/e/amq.default/q/q", 1),
        ("/api/bindings/%2F/e/x/e/amq.fanout", 1),
    ):
        assert len((await scene.http.get(path)).json()) == count, path
    assert (await scene.http.delete(place)).status_code == 204
    assert (await scene.http.delete(place)).status_code == 404
    assert (await scene.http.delete("/api/bindings/%2F/e/x/e/amq.fanout/~")).status_code == 204


async def test_rates_are_measured_while_they_are_asked_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KEDA's scaler reads messages and message_stats.publish_details.rate."""
    monkeypatch.setattr(rates, "_SECONDS", 0.05)
    await scene.http.put(Q, json={})
    found = (await scene.http.get(Q)).json()
    assert (found["messages"], found["message_stats"]["publish_details"]["rate"]) == (0, 0.0)
    async with asyncio.timeout(20):
        while not found["message_stats"]["publish_details"]["rate"]:
            await publish(scene)
            found = (await scene.http.get(Q)).json()
    assert found["messages"] == found["message_stats"]["publish"] > 0
    assert "idle_since" not in found
    overview = (await scene.http.get("/api/overview")).json()
    assert overview["message_stats"]["publish"] == found["messages"]
    assert overview["queue_totals"]["messages_ready"] == found["messages"]


async def test_health_checks(scene: Scene) -> None:
    port = int(scene.broker.amqp.rpartition(":")[2])
    for check in (
        "alarms",
        "local-alarms",
        "virtual-hosts",
        "node-is-quorum-critical",
        f"port-listener/{port}",
        "protocol-listener/amqp091",
        "protocol-listener/http",
    ):
        answer = await scene.http.get(f"/api/health/checks/{check}")
        assert (answer.status_code, answer.json()["status"]) == (200, "ok"), check
    for check in ("port-listener/1", "protocol-listener/mqtt"):
        answer = await scene.http.get(f"/api/health/checks/{check}")
        assert (answer.status_code, answer.json()["status"]) == (503, "failed")
    assert (await scene.http.get("/api/aliveness-test/%2F")).json() == {"status": "ok"}
    assert (await scene.http.get("/api/aliveness-test/none")).status_code == 404


async def test_connections_and_channels(scene: Scene) -> None:
    [connection] = (await scene.http.get("/api/connections")).json()
    assert (connection["user"], connection["vhost"], connection["state"]) == ("guest", "/", "running")
    assert connection["client_properties"]["capabilities"]["basic.nack"] is True
    name = connection["name"]
    assert (await scene.http.get(f"/api/connections/{name}")).json()["name"] == name
    channels = (await scene.http.get(f"/api/connections/{name}/channels")).json()
    assert [each["confirm"] for each in channels] == [True]
    shown = (await scene.http.get(f"/api/channels/{channels[0]['name']}")).json()
    assert (shown["number"], shown["connection_details"]["name"]) == (channels[0]["number"], name)
    assert (await scene.http.get("/api/vhosts/%2F/connections")).json() == [connection]


async def test_access_is_by_permission() -> None:
    users = {"admin": "secret", "ann": "password"}
    async with (
        AsyncBroker(users=users) as broker,
        httpx.AsyncClient(base_url=f"http://{broker.admin}", auth=("ann", "password")) as ann,
    ):
        namespace = broker.app.broker.namespaces.get("/")
        for name in ("hers", "others"):
            await namespace.declare_queue(QueueDefinition(name=name), object())
        await broker.app.broker.access.acls.add(
            [
                Acl(kind=Kind.TOPIC, name="hers", principal="User:ann", operation=operation)
                for operation in (Operation.READ, Operation.CREATE)
            ]
        )
        assert [each["name"] for each in (await ann.get("/api/queues")).json()] == ["hers"]
        assert (await ann.put("/api/queues/%2F/hers", json={"durable": True})).status_code == 204
        message = {"properties": {}, "payload": "x", "payload_encoding": "string"}
        for method, path, body in (
            ("GET", "queues/%2F/others", None),
            ("PUT", "queues/%2F/new", {}),
            ("DELETE", "queues/%2F/hers", None),
            ("DELETE", "queues/%2F/others/contents", None),
            ("POST", "queues/%2F/others/get", GET),
            ("POST", "exchanges/%2F/amq.default/publish", {**message, "routing_key": "hers"}),
            ("GET", "overview", None),
            ("GET", "nodes", None),
            ("GET", "connections", None),
            ("GET", "channels", None),
            ("GET", "users", None),
            ("GET", "permissions", None),
            ("GET", "definitions", None),
            ("POST", "definitions", {"queues": [{"name": "new", "vhost": "/"}]}),
            ("PUT", "users/bob", {"password": "builder", "tags": ""}),
            ("PUT", "permissions/%2F/ann", {"configure": ".*", "write": ".*", "read": ".*"}),
        ):
            answer = await ann.request(method, f"/api/{path}", json=body)
            assert (answer.status_code, answer.json()["error"]) == (401, "not_authorised"), path
            assert "www-authenticate" not in answer.headers
        anonymous = await ann.get("/api/queues", auth=("ann", "wrong"))
        assert (anonymous.status_code, anonymous.json()["error"]) == (401, "not_authorized")
        assert anonymous.headers["www-authenticate"].startswith("Basic")


async def test_quick_columns_are_those_of_the_whole_view(scene: Scene) -> None:
    queue = await scene.channel.declare_queue("q", durable=True, arguments={"x-queue-type": "quorum"})
    await scene.channel.declare_queue("more", auto_delete=True)
    await scene.publish(b"1", b"2", b"3")
    held = await queue.get()
    whole = (await scene.http.get("/api/queues")).json()
    for name in QUICK:
        column = (await scene.http.get(f"/api/queues?columns={name}")).json()
        assert column == [{name: each[name]} for each in whole]
        ordered = (await scene.http.get(f"/api/queues?sort={name}&columns={name},node")).json()
        assert [each[name] for each in ordered] == sorted(each[name] for each in whole)
    await held.ack()


async def test_ten_thousand_queues_are_streamed_without_blocking() -> None:
    async with (
        AsyncBroker() as broker,
        httpx.AsyncClient(base_url=f"http://{broker.admin}", timeout=60) as http,
    ):
        await add_queues(broker, 10_000)
        for path in ("/api/overview", "/api/queues", "/api/queues?page=3&page_size=500", "/api/vhosts"):
            longest, answer = await shortest_of_longest_turns(partial(http.get, path))
            assert answer.status_code == 200
            assert longest < MOST_SECONDS, f"{path} does not give way"
            if path == "/api/queues":
                assert [each["name"] for each in json.loads(answer.content)][-1] == "q09999"


async def test_changes_are_audited(tmp_path: Path) -> None:
    async with (
        AsyncBroker(data=tmp_path, users={"admin": "secret"}) as broker,
        httpx.AsyncClient(base_url=f"http://{broker.admin}", auth=("admin", "secret")) as http,
    ):
        message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
        for method, path, body in (
            ("PUT", Q, {}),
            ("PUT", "/api/exchanges/%2F/x", {"type": "fanout"}),
            ("POST", "/api/bindings/%2F/e/x/q/q", {}),
            ("POST", PUBLISH, message),
            ("POST", f"{Q}/get", GET),
            ("DELETE", "/api/bindings/%2F/e/x/q/q/~", None),
            ("DELETE", f"{Q}/contents", None),
            ("DELETE", Q, None),
        ):
            assert (await http.request(method, path, json=body)).is_success
        lines = [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]
        actions = [(each["action"], each["resource"]) for each in lines if each["protocol"] == "http"]
        assert actions == [
            ("create", "topic:q"),
            ("create", "topic:x"),
            ("bind", "topic:q"),
            ("publish", "topic:q"),
            ("get", "topic:q"),
            ("unbind", "topic:q"),
            ("purge", "topic:q"),
            ("delete", "topic:q"),
        ]
