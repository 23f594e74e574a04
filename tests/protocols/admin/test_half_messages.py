"""Half messages by HTTP: prepared, decided, listed, and who may."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from posthouse.broker.access.operations import CLUSTER
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client

HALF = {"topic": "t", "group": "billing", "value": "paid"}


async def prepare(http: httpx.AsyncClient, status: int = 200, **fields: Any) -> Any:
    return answered(await http.post("/v1/half-messages", json=HALF | fields), status)


async def with_topic(http: httpx.AsyncClient, **fields: Any) -> None:
    answered(await http.post("/v1/topics", json={"name": "t", "partitions": 3} | fields), 201)


async def values(http: httpx.AsyncClient) -> list[Any]:
    found = answered(await http.get("/v1/topics/t/records", params={"timestamp": 0}))
    return [each["value"]["data"] for each in found["records"]]


async def test_from_preparing_to_deciding() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        headers = [{"name": "trace", "value": "7f3a"}]
        first = await prepare(http, key="ann", partition=2, headers=headers, value={"a": 1}, encoding="json")
        second = await prepare(http, name="order-2", check_after_seconds=60)
        assert (first["id"], first["partition"], second["id"]) == (0, 2, 1)
        assert await values(http) == []
        shown = answered(await http.get("/v1/half-messages/0"))
        assert (shown["topics"], shown["exchange"], shown["partition"]) == (["t"], None, 2)
        assert (shown["key"]["data"], shown["value"]["data"]) == ("ann", {"a": 1})
        assert [(each["name"], each["value"]["data"]) for each in shown["headers"]] == [("trace", "7f3a")]
        one, two = answered(await http.get("/v1/half-messages"))["items"]
        assert (one["id"], one["group"], one["name"], one["checks"]) == (0, "billing", None, 0)
        assert (two["id"], two["name"], two["namespace"], two["topics"]) == (1, "order-2", "/", ["t"])
        assert two["age_ms"] >= 0
        committed = answered(await http.post("/v1/half-messages/0/commit"))
        assert committed == {"id": 0, "outcome": "committed", "routed": True}
        assert await values(http) == [{"a": 1}]
        by_name = {"group": "billing", "name": "order-2"}
        answered(await http.post("/v1/half-messages/commit", json=by_name))
        assert await values(http) == ["paid", {"a": 1}] or await values(http) == [{"a": 1}, "paid"]
        assert answered(await http.get("/v1/half-messages"))["total"] == 0
        answered(await http.get("/v1/half-messages/0"), 404)


async def test_a_decision_is_final() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        await prepare(http, name="n")
        for _ in range(2):
            rolled_back = answered(await http.post("/v1/half-messages/0/rollback"))
            assert rolled_back["outcome"] == "rolled-back"
        late = answered(await http.post("/v1/half-messages/0/commit"), 409)
        assert late["detail"] == "half message 0 was rolled back, or parked before"
        name = {"group": "billing", "name": "n"}
        answered(await http.post("/v1/half-messages/commit", json=name), 409)
        answered(await http.post("/v1/half-messages/rollback", json=name))
        answered(await http.post("/v1/half-messages/rollback", json=name | {"name": "m"}), 404)
        answered(await http.post("/v1/half-messages/7/commit"), 404)
        assert await values(http) == []


async def test_names() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        same = [await prepare(http, name="n") for _ in range(3)]
        assert same == [same[0]] * 3
        different = await prepare(http, 409, name="n", value="other")
        assert "has another half message with the name 'n'" in different["detail"]
        assert (await prepare(http, name="n", group="others"))["id"] == 1


@pytest.mark.parametrize(
    ("fields", "status", "detail"),
    [
        ({"value": None}, 400, "needs a value"),
        ({"group": ""}, 400, "group"),
        ({"group": "é" * 150}, 400, "the group has more than 200 bytes"),
        ({"name": "é" * 150}, 400, "the name has more than 255 bytes"),
        ({"partition": 3}, 404, "partition"),
        ({"topic": "missing"}, 404, "missing"),
        ({"check_after_seconds": 10**6}, 400, "check_after_seconds"),
        ({"value": "x" * 2000}, 413, "exceeds the limit of 1000"),
        ({"headers": [{"name": "n", "value": 7}]}, 400, "header 'n'"),
    ],
)
async def test_what_cannot_be_prepared(fields: dict[str, Any], status: int, detail: str) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http, settings={"max.message.bytes": "1000"})
        assert detail in (await prepare(http, status, **fields))["detail"]
        assert answered(await http.get("/v1/half-messages"))["total"] == 0


async def test_the_list_has_pages_and_filters() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        for number in range(5):
            await prepare(http, name=f"n{number}", group="a" if number % 2 else "b")

        async def listed(**query: Any) -> tuple[list[int], int, str | None]:
            page = answered(await http.get("/v1/half-messages", params=query))
            return [each["id"] for each in page["items"]], page["total"], page["next"]

        assert await listed(limit=2) == ([0, 1], 5, "1")
        assert await listed(limit=2, after="1") == ([2, 3], 5, "3")
        assert await listed(limit=2, after="3") == ([4], 5, None)
        assert await listed(group="a") == ([1, 3], 2, None)
        assert await listed(name="n4") == ([4], 1, None)
        assert await listed(topic="other") == ([], 0, None)
        assert await listed(older_than_ms=10**9) == ([], 0, None)
        answered(await http.get("/v1/half-messages", params={"after": "x"}), 400)


async def test_permissions() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        await with_topic(admin)
        await prepare(admin, name="n")
        await prepare(ann, 403)
        name = {"group": "billing", "name": "n"}
        assert answered(await ann.get("/v1/half-messages"))["total"] == 0
        answered(await ann.get("/v1/half-messages/0"), 403)
        for decision in ("commit", "rollback"):
            answered(await ann.post(f"/v1/half-messages/0/{decision}"), 403)
            answered(await ann.post(f"/v1/half-messages/{decision}", json=name), 403)
        describe = {"principal": "User:ann", "operation": "describe", "kind": "cluster", "name": CLUSTER}
        answered(await admin.post("/v1/acls", json={"acls": [describe]}), 201)
        assert answered(await ann.get("/v1/half-messages"))["total"] == 1
        answered(await ann.get("/v1/half-messages/0"), 403)
        write = {"principal": "User:ann", "operation": "write", "kind": "topic", "name": "t"}
        answered(await admin.post("/v1/acls", json={"acls": [write]}), 201)
        assert answered(await ann.get("/v1/half-messages/0"))["name"] == "n"
        answered(await ann.post("/v1/half-messages/commit", json=name))
        answered(await admin.post("/v1/acls/delete", json={"name": "t"}))
        answered(await ann.post("/v1/half-messages/0/commit"), 403)


async def test_the_management_api_publishes_no_half_messages() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answered(await http.put("/api/queues/%2F/q", json={}), 201)
        properties = {"message_id": "m", "headers": {"x-half-message": "prepare", "x-producer-group": "g"}}
        message = {"properties": properties, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
        refused = await http.post("/api/exchanges/%2F/amq.default/publish", json=message)
        assert "for half messages use AMQP or /v1/half-messages" in answered(refused, 400)["reason"]
        assert len(broker.app.broker.half_messages) == 0


async def test_a_broker_that_is_not_alone_refuses() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        broker.app.broker.half_messages._is_alone = False
        assert "need a broker that is alone" in (await prepare(http, 400))["detail"]
        answered(await http.get("/v1/half-messages"), 400)


async def test_a_client_that_leaves_does_not_end_the_decision(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path) as broker, client(broker) as http:
        await with_topic(http)
        await prepare(http)
        leaving = asyncio.create_task(http.post("/v1/half-messages/0/commit"))
        await asyncio.sleep(0)
        leaving.cancel()
        answered(await http.post("/v1/half-messages/0/commit"))
        assert await values(http) == ["paid"]
