"""Every call that changes something leaves a line in the audit log that says what it did."""

import json
from pathlib import Path
from typing import Any

import aio_pika
import httpx

from posthouse.protocols.admin.routes import ROUTES
from posthouse.testing import AsyncBroker
from tests.protocols.admin import transactional
from tests.protocols.admin.clients import USERS, client

_MESSAGE = {"properties": {}, "routing_key": "a", "payload": "x", "payload_encoding": "string"}
_TAKE = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
_ACL = {"principal": "User:ann", "operation": "read", "kind": "topic", "name": "t"}
_BINDING = {"source": "x", "vhost": "/", "destination": "a", "destination_type": "queue", "routing_key": "k"}
_PATTERNS = {"configure": "^a$", "write": "", "read": ""}
_WEBHOOK = {"name": "h", "topic": "t", "url": "https://127.0.0.1:1/"}
_HALF = {"topic": "t", "group": "g", "value": "x"}

_CALLS: tuple[tuple[str, dict[str, str], Any, str], ...] = (
    ("POST /v1/topics", {}, {"name": "t", "partitions": 1}, "create topic:t"),
    ("POST /v1/topics/{topic}/records", {}, {"records": [{"value": "x"}]}, "produce topic:t"),
    ("POST /v1/topics/{topic}/delayed-records", {}, {"deliver_at": 1, "value": "x"}, "produce topic:t"),
    ("POST /v1/half-messages", {}, _HALF | {"name": "a"}, "prepare topic:t"),
    ("POST /v1/half-messages", {}, _HALF | {"name": "b"}, "prepare topic:t"),
    ("POST /v1/half-messages", {}, _HALF | {"name": "c"}, "prepare topic:t"),
    ("POST /v1/half-messages", {}, _HALF | {"name": "d"}, "prepare topic:t"),
    ("POST /v1/half-messages/{half_message}/commit", {"half_message": "0"}, None, "commit topic:t"),
    ("POST /v1/half-messages/{half_message}/rollback", {"half_message": "1"}, None, "roll-back topic:t"),
    ("POST /v1/half-messages/commit", {}, {"group": "g", "name": "c"}, "commit topic:t"),
    ("POST /v1/half-messages/rollback", {}, {"group": "g", "name": "d"}, "roll-back topic:t"),
    ("POST /v1/topics/{topic}/groups/{group}/take", {"group": "h"}, None, "create group:h"),
    ("PATCH /v1/topics/{topic}/settings", {}, {"retention.ms": "1000"}, "alter-configs topic:t"),
    ("POST /v1/topics/{topic}/partitions", {}, {"partitions": 2}, "alter topic:t"),
    ("POST /v1/topics/{topic}/trim", {}, {}, "delete-records topic:t"),
    ("POST /v1/groups/{group}/reset", {}, {"to": "earliest", "topics": ["t"]}, "reset group:g"),
    ("PUT /v1/groups/{group}/limits", {}, {"rate": 100}, "limit-deliveries group:g"),
    ("DELETE /v1/groups/{group}/limits", {}, None, "limit-deliveries group:g"),
    ("DELETE /v1/groups/{group}", {}, None, "delete group:g"),
    ("PUT /api/queues/{vhost}/{name}", {"name": "a"}, {}, "create topic:a"),
    ("PUT /api/queues/{vhost}/{name}", {"name": "b"}, {}, "create topic:b"),
    ("PUT /api/exchanges/{vhost}/{name}", {"name": "x"}, {"type": "topic"}, "create topic:x"),
    ("POST /api/bindings/{vhost}/e/{source}/{kind}/{destination}", {}, {"routing_key": "k"}, "bind topic:a"),
    ("DELETE /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{key}", {}, None, "unbind topic:a"),
    ("POST /api/definitions", {}, {"bindings": [_BINDING]}, "bind topic:a"),
    ("POST /api/definitions/{vhost}", {}, {"queues": [{"name": "c"}]}, "create topic:c"),
    ("POST /api/exchanges/{vhost}/{name}/publish", {"name": "amq.default"}, _MESSAGE, "publish topic:a"),
    ("POST /api/queues/{vhost}/{name}/get", {"name": "a"}, _TAKE, "get topic:a"),
    ("DELETE /api/queues/{vhost}/{name}/contents", {"name": "a"}, None, "purge topic:a"),
    ("POST /v1/queues/{namespace}/{queue}/purge", {}, None, "purge topic:a"),
    ("POST /v1/queues/{namespace}/{queue}/move", {}, {"to": "b"}, "move topic:a"),
    ("POST /v1/queues/{namespace}/{queue}/requeue", {}, {}, "requeue topic:a"),
    ("PUT /v1/queues/{namespace}/{queue}/limits", {}, {"concurrency": 8}, "limit-deliveries topic:a"),
    ("DELETE /v1/queues/{namespace}/{queue}/limits", {}, None, "limit-deliveries topic:a"),
    ("DELETE /v1/queues/{namespace}/{queue}", {}, None, "delete topic:a"),
    ("DELETE /api/queues/{vhost}/{name}", {"name": "b"}, None, "delete topic:b"),
    ("DELETE /api/exchanges/{vhost}/{name}", {"name": "x"}, None, "delete topic:x"),
    ("PUT /v1/quotas", {}, {"user": "ann", "rates": {"consumer_byte_rate": 5e9}}, "alter-quota quota:"),
    ("POST /v1/acls", {}, {"acls": [_ACL]}, "create-acl topic:t"),
    ("POST /v1/acls/delete", {}, {"name": "t"}, "delete-acl topic:t"),
    ("PUT /v1/users/{user}", {"user": "bob"}, {"password": "first"}, "set-credential user:bob"),
    (
        "POST /v1/users/{user}/access-keys",
        {"user": "bob"},
        {"access_key": "key-1"},
        "add-access-key user:bob",
    ),
    ("DELETE /v1/users/{user}/access-keys/{access_key}", {"user": "bob"}, None, "remove-access-key user:bob"),
    ("DELETE /v1/users/{user}", {"user": "bob"}, None, "delete-credential user:bob"),
    ("PUT /api/users/{user}", {"user": "eve"}, {"password": "x", "tags": ""}, "set-credential user:eve"),
    ("PUT /api/permissions/{vhost}/{user}", {"user": "eve"}, _PATTERNS, "create-acl topic:a"),
    ("DELETE /api/permissions/{vhost}/{user}", {"user": "eve"}, None, "delete-acl topic:a"),
    ("DELETE /api/users/{user}", {"user": "eve"}, None, "delete-credential user:eve"),
    ("POST /v1/webhooks", {}, _WEBHOOK, "create-webhook topic:t"),
    ("PATCH /v1/webhooks/{webhook}", {"webhook": "h"}, {"batch": 1}, "change-webhook topic:t"),
    ("POST /v1/webhooks/{webhook}/pause", {"webhook": "h"}, {}, "pause-webhook topic:t"),
    ("POST /v1/webhooks/{webhook}/resume", {"webhook": "h"}, None, "resume-webhook topic:t"),
    ("POST /v1/webhooks/{webhook}/rotate", {"webhook": "h"}, {}, "rotate-webhook topic:t"),
    ("POST /v1/webhooks/{webhook}/replay", {"webhook": "h"}, {"since": "earliest"}, "replay-webhook topic:t"),
    ("POST /v1/webhooks/{webhook}/test", {"webhook": "h"}, None, "test-webhook topic:t"),
    ("DELETE /v1/webhooks/{webhook}", {"webhook": "h"}, None, "delete-webhook topic:t"),
    ("POST /v1/transactions/{id}/abort", {}, None, "abort-transaction transactional-id:tx"),
    (
        "POST /v1/transactions/{id}/commit",
        {"id": "two-phase"},
        None,
        "commit-transaction transactional-id:two-phase",
    ),
    ("DELETE /v1/topics/{topic}", {}, None, "delete topic:t"),
    ("DELETE /v1/connections/{peer}", {}, None, "close-connection connection:"),
    ("DELETE /api/connections/{name}", {}, None, "close-connection connection:"),
)
_CHANGES_NOTHING = {"PUT /api/vhosts/{vhost}", "DELETE /api/vhosts/{vhost}"}
_OF_A_CLUSTER = {
    "POST /v1/cluster/brokers/{broker}/drain",
    "POST /v1/cluster/brokers/{broker}/undrain",
    "POST /v1/cluster/scopes/{scope}/move",
}
"""Refused here, because this broker is alone: see `test_cluster.py`."""
_OF_CONSUMERS = {"POST /v1/topics/{topic}/groups/{group}/settle"}
"""As with consumers of all protocols: what was refused is in the log, and not each message."""
_NAMES = {
    "topic": "t",
    "group": "g",
    "vhost": "%2F",
    "namespace": "%2F",
    "queue": "a",
    "source": "x",
    "kind": "q",
    "destination": "a",
    "key": "k",
    "id": "tx",
    "access_key": "key-1",
}


def test_no_call_is_forgotten() -> None:
    changing = {f"{each.method} {each.path}" for each in ROUTES if each.method != "GET"}
    assert {call for call, *_ in _CALLS} | _CHANGES_NOTHING | _OF_A_CLUSTER | _OF_CONSUMERS == changing


async def test_every_change(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"transaction_two_phase_commit_enable": True}
    async with (
        AsyncBroker(users=USERS, data=tmp_path, **settings) as broker,
        client(broker, "admin") as admin,
    ):
        for call, names, body, expected in _CALLS:
            if "/transactions/" in call:
                id = names.get("id", "tx")
                await transactional.write(broker.app.broker, id, "t", "half done", two_phase=id != "tx")
            if "/connections/" in call:
                await aio_pika.connect(f"amqp://admin:{USERS['admin']}@{broker.amqp}/")
                [peer] = [each.peer for each in broker.app.connections if each.info.protocol == "amqp"]
                names = {"peer": peer, "name": peer}
            lines = await _lines_of(admin, tmp_path, call, names, body)
            assert any(line.startswith(expected) for line in lines), (call, lines)
            if "/connections/" in call:
                while any(each.info.protocol == "amqp" for each in broker.app.connections):
                    await admin.get("/health/live")


async def _lines_of(
    admin: httpx.AsyncClient, directory: Path, call: str, names: dict[str, str], body: Any
) -> list[str]:
    """What the call adds to the log: actions and their objects."""
    method, path = call.split(" ")
    log = directory / "audit.log"
    before = log.stat().st_size if log.exists() else 0
    content = None if body is None else json.dumps(body)
    headers = {} if body is None else {"content-type": "application/json"}
    answer = await admin.request(method, path.format(**_NAMES | names), content=content, headers=headers)
    assert answer.is_success, (call, answer.text)
    added = [json.loads(line) for line in log.read_text()[before:].splitlines()]
    return [f"{each['action']} {each['resource']}" for each in added if each["allowed"]]
