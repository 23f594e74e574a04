"""RabbitMQ's management API: messages that are published and got."""

from typing import Any

import pytest

from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, client
from tests.protocols.admin.conftest import Scene
from tests.protocols.admin.management_calls import GET, PUBLISH, Q, publish


async def test_messages_keep_their_properties(scene: Scene) -> None:
    await scene.http.put(Q, json={})
    properties = {
        "content_type": "text/plain",
        "headers": {"a": 1, "b": "x", "c": [1, {"d": True}], "f": 1.5},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "timestamp": 12345,
        "message_id": "m",
    }
    assert (await publish(scene, properties=properties)).json() == {"routed": True}
    assert (await publish(scene, "//4=", payload_encoding="base64")).json() == {"routed": True}
    text, binary = (await scene.http.post(f"{Q}/get", json=GET)).json()
    assert text == {
        "payload_bytes": 5,
        "redelivered": False,
        "exchange": "",
        "routing_key": "q",
        "message_count": 1,
        "properties": properties,
        "payload": "hello",
        "payload_encoding": "string",
    }
    assert (binary["payload"], binary["payload_encoding"], binary["properties"]) == ("//4=", "base64", [])
    assert (await scene.http.post(f"{Q}/get", json=GET)).json() == []


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"priority": "x"}, "priority must be a number"),
        ({"content_type": 7}, "content_type must be a string"),
        ({"message_id": "m" * 256}, "255 bytes"),
        ({"headers": "none"}, "headers must be an object"),
        ({"expiration": "soon"}, "invalid expiration"),
        ({"headers": {"CC": "no list"}}, "unacceptable_type_in_header"),
        ({"user_id": "root"}, "user_id property set to 'root'"),
        ({"reply_to": "amq.rabbitmq.reply-to"}, "fast reply consumer does not exist"),
    ],
)
async def test_wrong_properties_are_refused(scene: Scene, properties: Any, reason: str) -> None:
    await scene.http.put(Q, json={})
    answer = await publish(scene, properties=properties)
    assert answer.status_code == 400
    assert reason in answer.json()["reason"]


async def test_a_full_queue_refuses_and_the_others_get_the_message(scene: Scene) -> None:
    limit = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await scene.http.put(Q, json={"arguments": limit})
    await scene.http.put("/api/queues/%2F/other", json={"arguments": limit | {"x-max-length": 2}})
    for name in ("q", "other"):
        await scene.http.post(f"/api/bindings/%2F/e/amq.fanout/q/{name}", json={})
    await publish(scene)
    to_both = PUBLISH.replace("amq.default", "amq.fanout")
    body = {"properties": {}, "routing_key": "", "payload": "x", "payload_encoding": "string"}
    refused = await scene.http.post(to_both, json=body)
    assert (refused.status_code, refused.json()["reason"]) == (400, "queue 'q' is full")
    assert (await scene.http.get("/api/queues/%2F/other")).json()["messages"] == 1
    assert (await publish(scene, key="other")).json() == {"routed": True}  # no room is reserved for ever
    assert (await publish(scene, key="other")).status_code == 400


async def test_a_publisher_cannot_claim_the_name_of_another_user() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as http,
    ):
        await http.put(Q, json={})
        body = {"routing_key": "q", "payload": "x", "payload_encoding": "string"}
        forged = await http.post(PUBLISH, json=body | {"properties": {"user_id": "ann"}})
        assert forged.status_code == 400
        assert "user_id property set to 'ann'" in forged.json()["reason"]
        own = await http.post(PUBLISH, json=body | {"properties": {"user_id": "admin"}})
        assert own.json() == {"routed": True}


@pytest.mark.parametrize(
    ("ackmode", "left", "dead"),
    [
        ("ack_requeue_false", 0, 0),
        ("ack_requeue_true", 1, 0),
        ("reject_requeue_true", 1, 0),
        ("reject_requeue_false", 0, 1),
    ],
)
async def test_what_is_got_is_settled_as_asked(scene: Scene, ackmode: str, left: int, dead: int) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await scene.http.put(Q, json={"arguments": arguments})
    await scene.http.put("/api/queues/%2F/dead", json={})
    await publish(scene)
    await scene.http.post(f"{Q}/get", json=GET | {"ackmode": ackmode, "truncate": 2})
    queues = (await scene.http.get("/api/queues")).json()
    assert {each["name"]: each["messages"] for each in queues} == {"q": left, "dead": dead}
    assert all(each["messages_unacknowledged"] == 0 for each in queues)


async def test_an_exclusive_queue_belongs_to_its_connection(scene: Scene) -> None:
    await scene.channel.declare_queue("q", exclusive=True)
    for method, path, body in (("POST", f"{Q}/get", GET), ("DELETE", Q, None)):
        answer = await scene.http.request(method, path, json=body)
        assert answer.status_code == 400
        assert "cannot obtain exclusive access" in answer.json()["reason"]
