"""Queues, exchanges and bindings in the JSON API."""

import asyncio
from dataclasses import replace
from functools import partial

import aio_pika
import httpx
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.reading import QueueGone
from posthouse.broker.queues.record_headers import DEATHS
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.model.errors import DataDamaged, PosthouseError
from posthouse.protocols.admin.handlers import queues
from posthouse.records.header_section import encode_section
from posthouse.testing import AsyncBroker
from tests.broker.queues.rig import PLAIN
from tests.protocols.admin.conftest import Scene
from tests.protocols.admin.many_queues import add_queues
from tests.protocols.admin.turn_times import MOST_SECONDS, shortest_of_longest_turns

Q = "/v1/queues/%2F/q"


async def _dead(scene: Scene) -> None:
    """Two dead letters of q in the queue "graves"."""
    await scene.channel.declare_queue(
        "q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
    )
    graves = await scene.channel.declare_queue("graves")
    await scene.publish(b"a", b"b", headers={"colour": "red"})
    queue = await scene.channel.get_queue("q")
    for _ in range(2):
        await (await queue.get()).reject()
    while (await graves.declare()).message_count < 2:
        await asyncio.sleep(0.01)


async def test_queues_are_listed(scene: Scene) -> None:
    queue = await scene.channel.declare_queue("q", durable=True)
    await scene.channel.declare_queue("empty", durable=True)
    await scene.publish(b"a", b"b", b"c")
    held = await queue.get()
    page = (await scene.http.get("/v1/queues")).json()
    assert (page["total"], page["next"]) == (2, None)
    empty, found = page["items"]
    assert 0 <= found.pop("oldest_age_ms") < 60_000
    assert {name: found[name] for name in found if name != "counters"} == {
        "namespace": "/",
        "name": "q",
        "kind": "queue",
        "durable": True,
        "state": "unconsumed",
        "ready": 2,
        "unacked": 1,
        "consumers": 0,
    }
    assert (empty["state"], empty["oldest_age_ms"]) == ("empty", None)
    await held.ack()


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("search=or", ["/orders"]),
        ("namespace=/", ["/lonely", "/orders"]),
        ("namespace=%2F&state=unconsumed", ["/lonely"]),
        ("state=empty", ["/orders", "othernews"]),
        ("limit=2", ["/lonely", "/orders"]),
        ("limit=2&after=%252F/orders", ["othernews"]),
    ],
)
async def test_queues_are_found(query: str, names: list[str]) -> None:
    async with AsyncBroker(namespaces=("other",)) as broker, _http(broker) as http:
        for namespace, name in (("/", "orders"), ("/", "lonely"), ("other", "news")):
            await _declare(broker, name, namespace)
        namespace_ = broker.app.broker.namespaces.get("/")
        wave = TransactionWave(broker.app.broker.publishing)
        namespace_.publish(namespace_.router.default, b"lonely", b"x", PLAIN, wave)
        await wave.commit()
        found = (await http.get(f"/v1/queues?{query}")).json()
        assert [each["namespace"] + each["name"] for each in found["items"]] == names


async def test_a_stalled_queue_is_found(scene: Scene) -> None:
    queue = await scene.channel.declare_queue("q")
    await scene.channel.set_qos(1)
    await queue.consume(_hold)
    await scene.publish(b"a", b"b")
    found = (await scene.http.get("/v1/queues?state=stalled")).json()
    assert [(each["name"], each["ready"], each["unacked"]) for each in found["items"]] == [("q", 1, 1)]
    [consumer] = (await scene.http.get(Q)).json()["consumer_list"]
    assert (consumer["prefetch"], consumer["unacked"], consumer["is_active"]) == (1, 1, True)
    [connection] = [each for each in scene.broker.app.connections if each.info.protocol == "amqp"]
    info = connection.info
    assert consumer["peer"] == info.peer
    assert info.client.startswith("aio")
    [channel] = info.channels
    assert (channel.consumers, channel.unacked, channel.confirms, channel.prefetch) == (1, 1, True, 1)


async def test_a_queue_is_described(scene: Scene) -> None:
    await _dead(scene)
    found = (await scene.http.get(Q)).json()
    assert found["definition"] == {
        "durable": False,
        "overflow": "drop-head",
        "dead_letter_exchange": "",
        "dead_letter_key": "graves",
        "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"},
    }
    assert (found["topic"], found["dead_letter_queues"]) == ("q", ["graves"])


async def test_messages_are_peeked_and_stay(scene: Scene) -> None:
    await scene.channel.declare_queue("q")
    await scene.publish(b"hello", headers={"colour": "red"}, content_type="text/plain", message_id="7")
    await scene.publish(b"\xff\x00")
    for _ in range(2):
        text, binary = (await scene.http.get(f"{Q}/messages")).json()["messages"]
        assert text["body"] == {"encoding": "text", "data": "hello", "size": 5}
        assert (text["routing_key"], text["exchange"], text["redelivered"]) == ("q", "", False)
        assert text["headers"] == {"colour": "red"}
        assert (text["properties"]["content-type"], text["properties"]["message-id"]) == ("text/plain", "7")
        assert binary["body"] == {"encoding": "base64", "data": "/wA=", "size": 2}
    assert len((await scene.http.get(f"{Q}/messages?limit=1")).json()["messages"]) == 1
    queue = await scene.channel.get_queue("q")
    assert (await queue.get()).redelivered is False


async def test_large_bodies_are_cut(scene: Scene) -> None:
    await scene.channel.declare_queue("q")
    await scene.publish("zwölf".encode(), b"\xff" * 100_000)
    text, binary = (await scene.http.get(f"{Q}/messages?value_bytes=3")).json()["messages"]
    assert text["body"] == {"encoding": "text", "data": "zw", "size": 6, "truncated": True}
    assert binary["body"] == {"encoding": "base64", "data": "////", "size": 100_000, "truncated": True}
    text, binary = (await scene.http.get(f"{Q}/messages")).json()["messages"]
    assert text["body"] == {"encoding": "text", "data": "zwölf", "size": 6}
    assert len(binary["body"]["data"]) == 4 * -(-64 * 1024 // 3)
    assert (await scene.http.get(f"{Q}/messages?value_bytes=-1")).status_code == 400


@pytest.mark.parametrize(("error", "status"), [(QueueGone, 404), (DataDamaged, 500)])
async def test_one_queue_that_cannot_be_read_spoils_no_list(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: type[PosthouseError], status: int
) -> None:
    async def peek(*args: object) -> None:
        raise error("it is gone")

    await scene.channel.declare_queue("q")
    await scene.publish(b"a")
    monkeypatch.setattr(LogQueue, "peek", peek)
    assert (await scene.http.get(f"{Q}/messages")).status_code == status
    [found] = (await scene.http.get("/v1/queues")).json()["items"]
    assert (found["name"], found["ready"]) == ("q", 1)


async def test_a_list_reads_the_messages_of_a_limited_number_of_queues(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_MOST_READS", 2)
    for name in ("a", "b", "c"):
        await scene.channel.declare_queue(name)
        await scene.publish(b"x", key=name)
    for known in (2, 3):
        items = (await scene.http.get("/v1/queues")).json()["items"]
        assert sum(each["oldest_age_ms"] is not None for each in items) == known
    assert scene.broker.app.broker.oldest_messages.reads == 3


async def test_dead_letters_go_back(scene: Scene) -> None:
    await _dead(scene)
    [death] = (await scene.http.get("/v1/queues/%2F/graves/messages")).json()["messages"][0]["deaths"]
    assert (death["queue"], death["reason"]) == ("q", "rejected")
    answer = await scene.http.post("/v1/queues/%2F/graves/requeue", json={"limit": 1})
    assert answer.json() == {"moved": 1, "to": {"q": 1}, "left": 0, "reason": ""}
    answer = await scene.http.post("/v1/queues/%2F/graves/requeue", json={})
    assert answer.json()["moved"] == 1
    back = await (await scene.channel.get_queue("q")).get()
    assert (back.body, back.routing_key, back.headers["colour"]) == (b"a", "q", "red")
    assert back.headers["x-death"][0]["queue"] == "q"


@pytest.mark.parametrize(
    ("note", "shown"),
    [
        (rb'[{"queue": "\ud800", "count": 99999999999999999999}, 7]', [{"queue": "?", "count": None}]),
        (b'[{"queue": ' + b"[" * 500 + b"]" * 500 + b"}]", [{"queue": [[[None]]]}]),
        (b"[" * 100_000, []),
        (b"\xff", []),
    ],
    ids=["surrogate", "deep", "deeper", "no text"],
)
async def test_any_note_of_deaths_is_shown(scene: Scene, note: bytes, shown: object) -> None:
    """A producer of Kafka may write any header."""
    await scene.channel.declare_queue("q")
    namespace = scene.broker.app.broker.namespaces.get("/")
    wave = TransactionWave(scene.broker.app.broker.publishing)
    envelope = replace(PLAIN, headers=encode_section([(DEATHS, note)]))
    namespace.publish(namespace.router.default, b"q", b"x", envelope, wave)
    await wave.commit()
    [found] = (await scene.http.get(f"{Q}/messages")).json()["messages"]
    assert found["deaths"] == shown
    answer = await scene.http.post(f"{Q}/requeue", json={})
    assert (answer.status_code, answer.json()["left"]) == (200, 1)


async def test_a_publisher_cannot_name_the_queue_of_a_requeue(scene: Scene) -> None:
    await _dead(scene)
    told = [{"queue": "q", "reason": "rejected", "count": 1, "routing-keys": ["q"]}]
    await scene.publish(b"forged", key="graves", headers={"x-death": told})
    answer = (await scene.http.post("/v1/queues/%2F/graves/requeue", json={})).json()
    assert (answer["to"], answer["left"]) == ({"q": 2}, 1)
    assert answer["reason"] == "the message is not a dead letter"


async def test_messages_are_moved(scene: Scene) -> None:
    await scene.channel.declare_queue("q")
    other = await scene.channel.declare_queue("other")
    await scene.publish(b"a", b"b", b"c")
    answer = await scene.http.post(f"{Q}/move", json={"to": "other", "limit": 2})
    assert answer.json() == {"moved": 2, "to": {"other": 2}, "left": 0, "reason": ""}
    assert (await scene.http.post(f"{Q}/move", json={"to": "gone"})).status_code == 404
    assert (await scene.http.post(f"{Q}/move", json={"to": "q"})).status_code == 400
    assert [(await other.get()).body for _ in range(2)] == [b"a", b"b"]


async def test_a_queue_is_purged_and_deleted(scene: Scene) -> None:
    await scene.channel.declare_queue("q")
    await scene.publish(b"a", b"b")
    assert (await scene.http.delete(f"{Q}?if_empty=true")).status_code == 409
    assert (await scene.http.post(f"{Q}/purge")).json() == {"messages": 2}
    assert (await scene.http.delete(f"{Q}?if_empty=true&if_unused=true")).status_code == 204
    gone = await scene.http.get(Q)
    assert (gone.status_code, gone.json()["detail"]) == (404, "there is no queue 'q'")
    assert (await scene.http.delete(Q)).status_code == 404


async def test_an_exclusive_queue_is_only_looked_at(scene: Scene) -> None:
    await scene.channel.declare_queue("q", exclusive=True)
    await scene.publish(b"a")
    assert len((await scene.http.get(f"{Q}/messages")).json()["messages"]) == 1
    for method, path in (("POST", f"{Q}/purge"), ("DELETE", Q)):
        assert (await scene.http.request(method, path)).status_code == 409


async def test_exchanges_and_bindings_are_listed(scene: Scene) -> None:
    queue = await scene.channel.declare_queue("q")
    exchange = await scene.channel.declare_exchange("news", "topic", durable=True)
    await queue.bind(exchange, "a.#")
    await queue.bind(exchange, "b.#", arguments={"x": 1})
    exchanges = {
        each["name"]: each for each in (await scene.http.get("/v1/exchanges?search=n")).json()["items"]
    }
    assert exchanges["news"]["kind"] == "topic"
    assert exchanges["news"]["bindings"] == 2
    bindings = (await scene.http.get("/v1/bindings", params={"source": "news", "destination": "q"})).json()
    assert {(each["key"], str(each["arguments"])) for each in bindings["items"]} == {
        ("a.#", "{}"),
        ("b.#", "{'x': 1}"),
    }
    assert (await scene.http.get("/v1/bindings?destination=other")).json()["items"] == []
    assert (await scene.http.get("/v1/bindings?namespace=none")).status_code == 404


async def test_permissions() -> None:
    users = {"admin": "secret", "ann": "password"}
    async with AsyncBroker(users=users) as broker, _http(broker, "ann") as ann:
        for name in ("hers", "others"):
            await _declare(broker, name)
        await broker.app.broker.access.acls.add(
            [Acl(kind=Kind.TOPIC, name="hers", principal="User:ann", operation=Operation.READ)]
        )
        assert [each["name"] for each in (await ann.get("/v1/queues")).json()["items"]] == ["hers"]
        assert (await ann.get("/v1/queues/%2F/hers/messages")).status_code == 200
        for method, path, body in (
            ("GET", "others", None),
            ("GET", "others/messages", None),
            ("DELETE", "hers", None),
            ("POST", "others/purge", None),
            ("POST", "hers/move", {"to": "others"}),
            ("GET", "nothing", None),
        ):
            answer = await ann.request(method, f"/v1/queues/%2F/{path}", json=body)
            assert answer.status_code == 403, path


async def test_a_client_without_permissions_does_not_learn_which_namespaces_exist() -> None:
    users = {"admin": "secret", "ann": "password"}
    async with (
        AsyncBroker(users=users, namespaces=("hidden",)) as broker,
        _http(broker, "ann") as ann,
    ):
        for path in (
            "/v1/queues/{}/q",
            "/v1/queues?namespace={}",
            "/v1/exchanges?namespace={}",
            "/v1/bindings?namespace={}",
            "/api/queues/{}",
            "/api/exchanges/{}/amq.default",
            "/api/vhosts/{}",
        ):
            answers = [await ann.get(path.format(name)) for name in ("hidden", "none")]
            statuses = {answer.status_code for answer in answers}
            assert statuses == ({401} if path.startswith("/api") else {403}), path
            texts = {answer.text.replace("hidden", "?").replace("none", "?") for answer in answers}
            assert len(texts) == 1, path
        for path in ("/v1/exchanges", "/api/exchanges", "/api/bindings", "/api/vhosts"):
            assert "hidden" not in (await ann.get(path)).text, path
        await broker.app.broker.access.acls.add(
            [Acl(kind=Kind.TOPIC, name="hidden..q", principal="User:ann", operation=Operation.READ)]
        )
        assert (await ann.get("/v1/queues?namespace=hidden")).status_code == 200
        assert (await ann.get("/v1/queues/hidden/q")).status_code == 404


async def test_a_description_shows_what_the_client_may_see() -> None:
    users = {"admin": "secret", "ann": "password"}
    async with (
        AsyncBroker(users=users) as broker,
        _http(broker, "ann") as ann,
        await aio_pika.connect_robust(f"amqp://admin:secret@{broker.amqp}/") as connection,
    ):
        channel = await connection.channel()
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graves"}
        queue = await channel.declare_queue("q", arguments=arguments)
        await channel.declare_queue("graves")
        await queue.consume(_hold)
        acl = Acl(kind=Kind.TOPIC, name="q", principal="User:ann", operation=Operation.READ)
        await broker.app.broker.access.acls.add([acl])
        found = (await ann.get(Q)).json()
        [consumer] = found["consumer_list"]
        assert (found["dead_letter_queues"], consumer["peer"], consumer["user"]) == ([], "", "")
        await broker.app.broker.access.acls.add(
            [
                replace(acl, name="graves"),
                replace(acl, kind=Kind.CLUSTER, name=CLUSTER, operation=Operation.DESCRIBE),
            ]
        )
        found = (await ann.get(Q)).json()
        [consumer] = found["consumer_list"]
        assert (found["dead_letter_queues"], consumer["user"]) == (["graves"], "admin")


async def test_ten_thousand_queues_do_not_block_the_loop() -> None:
    async with AsyncBroker() as broker, _http(broker) as http:
        await add_queues(broker, 10_000)
        await http.get("/v1/queues?limit=1")
        longest, answer = await shortest_of_longest_turns(
            partial(http.get, "/v1/queues?limit=1000&search=q0")
        )
        found = answer.json()
        assert (found["total"], len(found["items"])) == (10_000, 1000)
        assert longest < MOST_SECONDS, "a loop does not give way"


async def _hold(message: object) -> None:
    """Never acknowledge it."""


async def _declare(broker: AsyncBroker, name: str, namespace: str = "/") -> None:
    await broker.app.broker.namespaces.get(namespace).declare_queue(QueueDefinition(name=name), object())


def _http(broker: AsyncBroker, user: str | None = None) -> httpx.AsyncClient:
    auth = None if user is None else (user, "password")
    return httpx.AsyncClient(base_url=f"http://{broker.admin}", auth=auth)
