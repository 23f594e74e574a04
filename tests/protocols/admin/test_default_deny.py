"""Once there are users: nothing without a login, and nothing for a user without permissions."""

from collections.abc import AsyncIterator
from typing import Any

import aio_pika
import httpx
import pytest

from posthouse.protocols.admin.router import Route
from posthouse.protocols.admin.routes import ROUTES
from posthouse.testing import AsyncBroker
from tests.protocols.admin import transactional
from tests.protocols.admin.clients import USERS, answered, client

_SECRET = "hidden"
"""In the names of everything that there is."""
_NAMES = {
    "topic": f"{_SECRET}-topic",
    "group": f"{_SECRET}-group",
    "namespace": "%2F",
    "vhost": "%2F",
    "queue": f"{_SECRET}-queue",
    "name": f"{_SECRET}-queue",
    "source": "amq.topic",
    "kind": "q",
    "destination": f"{_SECRET}-queue",
    "key": f"{_SECRET}-key",
    "id": f"{_SECRET}-tx",
    "user": f"{_SECRET}-user",
    "access_key": f"{_SECRET}-access-key",
    "peer": "127.0.0.1:1",
    "channel": "127.0.0.1:1 (1)",
    "node": "posthouse",
    "component": "x",
    "port": "1",
    "protocol": "amqp",
    "broker": f"{_SECRET}-broker",
    "scope": "groups%2F00",
    "half_message": "0",
    "webhook": f"{_SECRET}-webhook",
    "saga": f"{_SECRET}-saga",
}
_BODIES: dict[str, Any] = {
    "POST /v1/topics": {"name": "another"},
    "POST /v1/topics/{topic}/partitions": {"partitions": 9},
    "POST /v1/topics/{topic}/records": {"records": [{"value": "x"}]},
    "POST /v1/topics/{topic}/delayed-records": {"deliver_at": 0, "value": "x"},
    "POST /v1/half-messages": {"topic": f"{_SECRET}-topic", "group": "g", "value": "x"},
    "POST /v1/half-messages/commit": {"group": f"{_SECRET}-producers", "name": f"{_SECRET}-half"},
    "POST /v1/half-messages/rollback": {"group": f"{_SECRET}-producers", "name": f"{_SECRET}-half"},
    "POST /v1/groups/{group}/reset": {"to": "earliest"},
    "POST /v1/webhooks": {"name": "mine", "topic": f"{_SECRET}-topic", "url": "https://example.org/"},
    "POST /v1/webhooks/{webhook}/replay": {"since": "earliest"},
    "POST /v1/queues/{namespace}/{queue}/move": {"to": f"{_SECRET}-queue"},
    "POST /v1/acls": {
        "acls": [{"principal": "User:ann", "operation": "all", "kind": "topic", "name": "*"}],
    },
    "POST /v1/acls/delete": {"kind": "topic"},
    "PUT /v1/quotas": {"user": "ann", "rates": {}},
    "PUT /v1/users/{user}": {"password": "mine now"},
    "PUT /api/users/{user}": {"password": "mine now"},
    "PUT /api/permissions/{vhost}/{user}": {"configure": ".*", "write": ".*", "read": ".*"},
    "POST /api/exchanges/{vhost}/{name}/publish": {
        "properties": {},
        "routing_key": f"{_SECRET}-queue",
        "payload": "x",
        "payload_encoding": "string",
    },
    "POST /api/queues/{vhost}/{name}/get": {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"},
    "POST /api/definitions": {"queues": [{"name": f"{_SECRET}-more"}]},
    "POST /api/definitions/{vhost}": {"queues": [{"name": f"{_SECRET}-more"}]},
}
_ENDLESS = "/v1/events"
"""`test_events.py` says the same of it, and `metrics/test_metrics.py` of /metrics."""
_CALLS = [route for route in ROUTES if not route.is_public and route.path != _ENDLESS]


@pytest.fixture
async def filled() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(users=USERS | {_NAMES["user"]: "password"}) as broker:
        async with client(broker, "admin") as admin:
            topic = {"name": _NAMES["topic"], "partitions": 1}
            answered(await admin.post("/v1/topics", json=topic), 201)
            half = {"topic": topic["name"], "group": f"{_SECRET}-producers", "value": "hidden"}
            answered(await admin.post("/v1/half-messages", json=half | {"name": f"{_SECRET}-half"}))
            reset = {"to": "earliest", "topics": [_NAMES["topic"]]}
            answered(await admin.post(f"/v1/groups/{_NAMES['group']}/reset", json=reset))
            answered(await admin.put(f"/api/queues/%2F/{_NAMES['queue']}", json={}), 201)
            path = f"/api/bindings/%2F/e/amq.topic/q/{_NAMES['queue']}"
            answered(await admin.post(path, json={"routing_key": _NAMES["key"]}), 201)
        async with await aio_pika.connect(f"amqp://admin:{USERS['admin']}@{broker.amqp}/") as connection:
            channel = await connection.channel()
            await channel.default_exchange.publish(aio_pika.Message(b"hidden-body"), _NAMES["queue"])
            await transactional.write(broker.app.broker, _NAMES["id"], _NAMES["topic"], "hidden-record")
            yield broker


async def _asked(http: httpx.AsyncClient, route: Route) -> httpx.Response:
    body = _BODIES.get(f"{route.method} {route.path}", {})
    return await http.request(
        route.method, route.path.format(**_NAMES), json=None if route.method == "GET" else body
    )


async def test_nothing_without_a_login(filled: AsyncBroker) -> None:
    async with client(filled) as http:
        for route in _CALLS:
            answer = await _asked(http, route)
            assert answer.status_code == 401, (route, answer.text)
            assert _SECRET not in answer.text


async def test_nothing_for_a_user_without_permissions(filled: AsyncBroker) -> None:
    async with client(filled, "ann") as ann:
        for route in _CALLS:
            answer = await _asked(ann, route)
            if answer.status_code < 400:
                assert route.method == "GET", (route, answer.text)
                assert _SECRET not in answer.text, (route, answer.text)
            else:
                refusals = (503,) if "/health/" in route.path else (400, 401, 403, 404)
                assert answer.status_code in refusals, (route, answer.text)
                assert not any(word in answer.text for word in ("body", "record", _NAMES["key"]))
        [vhost] = answered(await ann.get("/api/vhosts"))
        assert (vhost["messages"], vhost["message_stats"]["publish"]) == (0, 0)
    await _check_unchanged(filled)


async def _check_unchanged(filled: AsyncBroker) -> None:
    async with client(filled, "admin") as admin:
        topics = answered(await admin.get("/v1/topics"))["items"]
        assert [each["name"] for each in topics] == [_NAMES["queue"], _NAMES["topic"]]
        [queue] = answered(await admin.get("/v1/queues"))["items"]
        assert (queue["name"], queue["ready"]) == (_NAMES["queue"], 1)
        assert answered(await admin.get("/v1/acls"))["total"] == 0
        assert answered(await admin.get("/v1/groups"))["total"] == 1
        assert answered(await admin.get("/v1/transactions"))["total"] == 1
        answered(await admin.get("/v1/topics", auth=(_NAMES["user"], "password")))
