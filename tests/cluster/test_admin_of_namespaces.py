"""HTTP about namespaces that several brokers serve: whichever broker a client asks, it sees all of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import aio_pika
import httpx
import pytest
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage

from posthouse.model.scopes import NAMESPACES, Scope, scope_of_namespace
from posthouse.node import Node
from tests.cluster.nodes import CALM, nodes, until
from tests.cluster.scope_moves import holds, hurry, know_holders, move_scope

pytestmark = pytest.mark.timeout(240)

_SECONDS = 60
HERE = "/"
THERE = next(
    name
    for name in (f"shop{number}" for number in range(99))
    if scope_of_namespace(name) != scope_of_namespace(HERE)
)


@pytest.fixture
async def made(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sequence[Node]]:
    """The coordinator, which serves `/`, and a member, which serves the other namespace."""
    hurry(monkeypatch)
    async with nodes(url, "a", "b", times=CALM, namespaces=(THERE,)) as running:
        await know_holders(running)
        await _place(url, running, {HERE: running[0], THERE: running[1]})
        yield running


async def _place(url: str, made: Sequence[Node], wanted: Mapping[str, Node]) -> None:
    """Returns when all brokers know which of them serves each namespace."""
    for namespace, holder in wanted.items():
        await move_scope(url, scope_of_namespace(namespace), holder)
    await until(lambda: all(_knows(each, scope, made) for each in made for scope in NAMESPACES), _SECONDS)


def _knows(node: Node, scope: Scope, made: Sequence[Node]) -> bool:
    holder = node.view.holder_of(scope)
    return holder is not None and any(
        holds(each, scope) and each.parts.place.name == holder.name for each in made
    )


@asynccontextmanager
async def _http(node: Node) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{node.listeners['admin']}", timeout=_SECONDS) as made:
        yield made


async def _whole(http: httpx.AsyncClient, path: str) -> Any:
    """What is about groups, too, is refused while some of them move."""
    async with asyncio.timeout(_SECONDS):
        while (answer := await http.get(path)).status_code == 503:
            await asyncio.sleep(0.1)
    return _answered(answer)


def _path(*parts: str) -> str:
    return "/".join(quote(each, safe="") for each in parts)


def _answered(response: httpx.Response, status: int = 200) -> Any:
    assert response.status_code == status, response.text
    return response.json() if response.content else None


async def _declare(http: httpx.AsyncClient, namespace: str, *queues: str) -> None:
    for each in queues:
        _answered(await http.put(f"/api/queues/{_path(namespace, each)}", json={}), 201)


async def _publish(http: httpx.AsyncClient, namespace: str, queue: str) -> None:
    body = {"properties": {}, "routing_key": queue, "payload": "hello", "payload_encoding": "string"}
    path = f"/api/exchanges/{_path(namespace, 'amq.default')}/publish"
    assert _answered(await http.post(path, json=body)) == {"routed": True}


async def _names(http: httpx.AsyncClient, path: str) -> list[tuple[str, str]]:
    found = _answered(await http.get(path))
    rows = found if isinstance(found, list) else found["items"]
    return sorted((each.get("vhost") or each["namespace"], each["name"]) for each in rows)


async def test_every_broker_answers_about_all_namespaces(made: Sequence[Node]) -> None:
    everything = []
    for number, node in enumerate(made):
        async with _http(node) as http:
            for namespace in (HERE, THERE):
                queue = f"q{number}"
                everything.append((namespace, queue))
                await _declare(http, namespace, queue)
                await _publish(http, namespace, queue)
                shown = _answered(await http.get(f"/v1/queues/{_path(namespace, queue)}"))
                assert (shown["namespace"], shown["ready"]) == (namespace, 1)
    for node in made:
        async with _http(node) as http:
            for path in ("/v1/queues", "/api/queues", "/api/queues?page=1&sort=name"):
                assert await _names(http, path) == sorted(everything)
            for namespace in (HERE, THERE):
                of_it = [each for each in everything if each[0] == namespace]
                assert await _names(http, f"/v1/queues?namespace={_path(namespace)}") == of_it
                assert await _names(http, f"/api/queues/{_path(namespace)}") == of_it
            assert (await _whole(http, "/v1/overview"))["queues"] == len(everything)
            assert (await _whole(http, "/api/overview"))["queue_totals"]["messages"] == len(everything)
            logs = _answered(await http.get("/v1/disk"))["logs"]
            assert sum(each["kind"] == "queue" for each in logs) == len(everything)


async def test_metrics_are_those_of_one_broker(made: Sequence[Node]) -> None:
    async with _http(made[0]) as http:
        await _declare(http, HERE, "q")
        await _declare(http, THERE, "q")
    for node, namespace, other in ((made[0], HERE, THERE), (made[1], THERE, HERE)):
        async with _http(node) as http:
            text = (await http.get("/metrics")).text
        assert f'posthouse_queue_ready_messages{{namespace="{namespace}",queue="q"}} 0' in text
        assert f'namespace="{other}"' not in text


async def test_lists_are_whole_while_namespaces_move(url: str, made: Sequence[Node]) -> None:
    async with _http(made[0]) as http:
        await _declare(http, HERE, "q")
        await _declare(http, THERE, "q")
        whole = [(HERE, "q"), (THERE, "q")]
        seen = 0
        is_over = asyncio.Event()

        async def look(path: str) -> None:
            nonlocal seen
            while not is_over.is_set():
                answer = await http.get(path)
                if answer.status_code == 503:
                    await asyncio.sleep(0.01)
                    continue
                rows = _answered(answer)
                rows = rows if isinstance(rows, list) else rows["items"]
                assert (
                    sorted((each.get("vhost") or each["namespace"], each["name"]) for each in rows) == whole
                )
                seen += 1

        looking = [asyncio.create_task(look(path)) for path in ("/v1/queues", "/api/queues")]
        try:
            for to in (made[0], made[1], made[0], made[1]):
                await move_scope(url, scope_of_namespace(THERE), to)
                enough = seen + 4
                async with asyncio.timeout(_SECONDS):
                    while seen < enough and not any(each.done() for each in looking):
                        await asyncio.sleep(0.02)
        finally:
            is_over.set()
            await asyncio.gather(*looking)
        assert await _names(http, "/v1/queues") == whole


async def _connected(node: Node, vhost: str) -> AbstractConnection:
    address = node.listeners["amqp"]
    return await aio_pika.connect(host=address.host, port=address.port, virtualhost=vhost, timeout=_SECONDS)


async def _take(message: AbstractIncomingMessage) -> None: ...


async def test_a_connection_is_listed_once_and_can_be_closed(made: Sequence[Node]) -> None:
    """It is made to the coordinator, and served by the member."""
    async with _http(made[0]) as http:
        await _declare(http, THERE, "q")
        connection = await _connected(made[0], THERE)
        try:
            channel = await connection.channel()
            queue = await channel.get_queue("q")
            await queue.consume(_take)
            [row] = _answered(await http.get("/api/connections"))
            assert row["vhost"] == THERE
            assert _answered(await http.get(f"/api/vhosts/{THERE}/connections"))[0]["name"] == row["name"]
            assert len(_answered(await http.get("/api/channels"))) == 1
            [consumer] = _answered(await http.get("/api/consumers"))
            assert consumer["queue"] == {"name": "q", "vhost": THERE}
            of_amqp = [
                each
                for each in _answered(await http.get("/v1/connections"))["items"]
                if each["listener"] == "amqp"
            ]
            assert [each["namespace"] for each in of_amqp] == [THERE]
            totals = (await _whole(http, "/api/overview"))["object_totals"]
            assert (totals["connections"], totals["channels"], totals["consumers"]) == (1, 1, 1)
            _answered(await http.delete(f"/api/connections/{_path(row['name'])}"), 204)
            async with asyncio.timeout(_SECONDS):
                while _answered(await http.get("/api/connections")):
                    await asyncio.sleep(0.02)
        finally:
            await connection.close()
