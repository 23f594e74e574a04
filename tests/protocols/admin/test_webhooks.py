"""Webhooks by the JSON API."""

from typing import Any

import httpx
import pytest

from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client
from tests.webhooks.receivers import Reply, pushing_broker, receiver
from tests.webhooks.scenes import create_topic, produce, until

HOOK = {"name": "hook", "topic": "orders", "url": "https://shop.example/hook"}


async def shown(http: httpx.AsyncClient) -> dict[str, Any]:
    return dict(answered(await http.get("/v1/webhooks/hook")))


async def test_the_life_of_a_webhook() -> None:
    replies = [Reply(status=500, body=b"oops")]
    async with (
        pushing_broker() as broker,
        client(broker) as http,
        receiver(lambda _: replies.pop() if replies else Reply(body=b"fine")) as endpoint,
    ):
        await create_topic(broker.app.broker)
        body = {**HOOK, "url": endpoint.url, "first_delay_seconds": 0.02, "rate": 100}
        created = answered(await http.post("/v1/webhooks", json=body))
        assert created["name"] == "hook" and created["secret"].startswith("whsec_")
        assert answered(await http.post("/v1/webhooks", json=body), 409)["error"] == "WebhookExists"

        await produce(broker.app.broker, (None, b"1"), (None, b"2"))
        await endpoint.got(3)
        await until(lambda: broker.app.broker.webhooks.lag(broker.app.broker.webhooks.get("hook")) == 0)
        found = await shown(http)
        assert created["secret"] not in str(found)
        state = found["state"]
        assert (found["lag"], found["rate"], found["group"]) == (0, 100, "webhook.hook")
        assert (state["delivered"], state["failed_requests"], state["circuit"]) == (2, 1, "closed")
        assert state["success_rate"] == pytest.approx(2 / 3)
        assert (state["last_failure"]["status"], state["last_failure"]["answer"]) == (500, "oops")
        assert answered(await http.get("/v1/webhooks"))["total"] == 1
        metrics = (await http.get("/metrics")).text
        assert 'posthouse_webhook_delivered_messages_total{webhook="hook"} 2' in metrics
        assert 'posthouse_webhook_requests_total{webhook="hook",outcome="failed"} 1' in metrics
        assert 'posthouse_webhook_circuit_open{webhook="hook"} 0' in metrics

        tried = answered(await http.post("/v1/webhooks/hook/test"))
        assert (tried["status"], tried["answer"]) == (200, "fine")
        assert endpoint.bodies[-1] == b'{"test":true}'

        changed = answered(await http.patch("/v1/webhooks/hook", json={"rate": None, "concurrency": 3}))
        assert (changed["rate"], changed["concurrency"], changed["url"]) == (None, 3, endpoint.url)
        answered(await http.post("/v1/webhooks/hook/pause", json={"reason": "moving"}), 204)
        assert (await shown(http))["paused"] == "moving"
        answered(await http.post("/v1/webhooks/hook/resume"), 204)
        rotated = answered(await http.post("/v1/webhooks/hook/rotate", json={}))
        assert rotated["secret"] != created["secret"]
        assert (await shown(http))["secrets"] == 2

        again = answered(await http.post("/v1/webhooks/hook/replay", json={"since": "earliest"}))
        assert again == {"topic": "orders", "partitions": [{"partition": 0, "offset": 0}]}
        await endpoint.got(6)
        group = answered(await http.get("/v1/groups/webhook.hook"))
        assert group["members"][0]["client"] == "webhook hook"
        answered(await http.delete("/v1/groups/webhook.hook"), 409)
        answered(await http.delete("/v1/webhooks/hook"), 204)
        answered(await http.get("/v1/webhooks/hook"), 404)
        answered(await http.get("/v1/groups/webhook.hook"), 404)


@pytest.mark.parametrize(
    ("wrong", "status", "says"),
    [
        ({"topic": "none"}, 404, "none"),
        ({"url": "ftp://shop.example/"}, 400, "not a URL like"),
        ({"url": "https://a:b@shop.example/"}, 400, "user or password"),
        ({"filter": "a ="}, 400, ""),
        ({"queue": "mails"}, 400, "either a topic or a queue"),
        ({"batch": 5}, 400, "only the form cloudevents"),
        ({"secret": "secret"}, 400, "begins with whsec_"),
        ({"rate": 0}, 400, "rate"),
        ({"form": "xml"}, 400, "form"),
        ({"name": "a b"}, 400, "name"),
        ({"first_delay_seconds": 10, "longest_delay_seconds": 5}, 400, "longest_delay_seconds"),
        ({"nonsense": 1}, 400, "nonsense"),
    ],
)
async def test_what_is_wrong_is_named(wrong: dict[str, Any], status: int, says: str) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await create_topic(broker.app.broker)
        problem = answered(await http.post("/v1/webhooks", json=HOOK | wrong), status)
        assert says in problem["detail"]
        assert answered(await http.get("/v1/webhooks"))["total"] == 0


async def test_who_may_not_read_the_topic_may_not_have_it_sent_elsewhere() -> None:
    async with AsyncBroker(users=USERS) as broker:
        await create_topic(broker.app.broker)
        async with client(broker, "admin") as admin, client(broker, "ann") as ann:
            acl = {"principal": "User:ann", "operation": "alter", "kind": "cluster", "name": "kafka-cluster"}
            answered(await admin.post("/v1/acls", json={"acls": [acl]}), 201)
            refused = answered(await ann.post("/v1/webhooks", json=HOOK), 403)
            assert "may not read topic 'orders'" in refused["detail"]
            read = {"principal": "User:ann", "operation": "read", "kind": "topic", "name": "orders"}
            answered(await admin.post("/v1/acls", json={"acls": [read]}), 201)
            answered(await ann.post("/v1/webhooks", json=HOOK))


async def test_a_broker_on_a_shared_storage_refuses_webhooks(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        monkeypatch.setattr(broker.app.broker.webhooks, "_is_alone", False)
        for answer in (await http.get("/v1/webhooks"), await http.post("/v1/webhooks", json=HOOK)):
            assert "need a broker that is alone" in answered(answer, 400)["detail"]
