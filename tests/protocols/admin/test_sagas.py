"""Sagas by HTTP: the last states that runners have written, and who may see them."""

from typing import Any

import httpx
import pytest

from posthouse.protocols.admin import saga_states
from posthouse.protocols.admin.record_reading import on_a_thread
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client

TOPIC = "saga.order.state"


async def with_topic(http: httpx.AsyncClient, name: str = TOPIC) -> None:
    settings = {"cleanup.policy": "compact"}
    answered(await http.post("/v1/topics", json={"name": name, "partitions": 3, "settings": settings}), 201)


async def write(
    http: httpx.AsyncClient, id: str, version: int, status: str, *, topic: str = TOPIC, **fields: Any
) -> None:
    step = None if status in ("completed", "compensated") else "pay"
    state = {"id": id, "version": version, "status": status, "step": step, "started_ms": 1, "changed_ms": 2}
    await put(http, id, state | fields, topic)


async def put(http: httpx.AsyncClient, key: str, value: Any, topic: str = TOPIC) -> None:
    record = {"key": key, "value": value, "encoding": "json"}
    answered(await http.post(f"/v1/topics/{topic}/records", json={"records": [record]}))


async def listed(http: httpx.AsyncClient, **query: Any) -> list[tuple[str, str]]:
    items = answered(await http.get("/v1/sagas/order", params=query))["items"]
    return [(each["id"], each["status"]) for each in items]


async def test_the_last_states() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        assert answered(await http.get("/v1/sagas"))["items"] == []
        answered(await http.get("/v1/sagas/order"), 404)
        await with_topic(http)
        await with_topic(http, "saga..state")
        await write(http, "b", 1, "running", input={"item": "tea"}, attempt=2)
        await write(http, "a", 3, "compensating", error="no money")
        assert await listed(http) == [("a", "compensating"), ("b", "running")]
        await write(http, "a", 4, "compensated", error="no money")
        await put(http, "nonsense", {"id": 7})
        assert await listed(http) == [("a", "compensated"), ("b", "running")]
        assert await listed(http, status="running") == [("b", "running")]
        assert await listed(http, search="a") == [("a", "compensated")]
        assert await listed(http, limit=1, after="a") == [("b", "running")]
        shown = answered(await http.get("/v1/sagas/order/b"))
        assert (shown["input"], shown["attempt"], shown["results"]) == ({"item": "tea"}, 2, {})
        answered(await http.get("/v1/sagas/order/c"), 404)
        answered(await http.get("/v1/sagas/order", params={"status": "asleep"}), 400)
        assert answered(await http.get("/v1/sagas"))["items"] == [
            {"name": "order", "sagas": {"compensated": 1, "running": 1}}
        ]
        record = {"key": "a", "value": None}
        answered(await http.post(f"/v1/topics/{TOPIC}/records", json={"records": [record]}))
        assert await listed(http) == [("b", "running")]
        answered(await http.delete(f"/v1/topics/{TOPIC}"), 204)
        await with_topic(http)
        assert await listed(http) == []


async def test_the_oldest_that_have_ended_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saga_states, "MOST_SAGAS", 3)
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        for number in range(3):
            await write(http, f"ended-{number}", 1, "completed")
            assert len(await listed(http)) == number + 1
        await write(http, "live-1", 1, "running")
        assert [id for id, _ in await listed(http)] == ["ended-1", "ended-2", "live-1"]
        for number in range(4):
            await write(http, f"more-{number}", 1, "waiting")
            assert len(await listed(http)) == 3
        assert [id for id, _ in await listed(http)] == ["more-1", "more-2", "more-3"]
        await write(http, "more-0", 2, "completed")
        assert [id for id, _ in await listed(http)] == ["more-1", "more-2", "more-3"]


async def test_memory_has_no_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        monkeypatch.setattr(saga_states, "MOST_BYTES", 20_000)
        for number in range(3):
            await write(http, f"s{number}", 1, "running", input="x" * 50_000, error="e" * 9000)
        assert [id for id, _ in await listed(http)] == ["s0", "s1", "s2"]
        [first, *_] = answered(await http.get("/v1/sagas/order"))["items"]
        assert first["error"] == "e" * saga_states.LONGEST_ERROR
        shown = answered(await http.get("/v1/sagas/order/s1"))
        assert (shown["input"], shown["error"], shown["left_out"]) == ("x" * 50_000, "e" * 9000, None)


async def test_memory_is_limited_over_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left out is read again."""
    async with AsyncBroker() as broker, client(broker) as http:
        monkeypatch.setattr(saga_states, "MOST_BYTES", 5000)
        names = [f"kind{number}" for number in range(5)]
        for name in names:
            await with_topic(http, f"saga.{name}.state")
            for number in range(5):
                await write(http, f"s{number}", 1, "waiting", topic=f"saga.{name}.state")
        states, engine = saga_states.SagaStates(), broker.app.broker
        for name in names * 2:
            topic = engine.topic(f"saga.{name}.state")
            assert len(await states.refreshed(engine, topic, on_a_thread)) == 5
            kept = states._by_topic
            assert topic.name in kept and len(kept) < len(names)
            assert sum(each.memory for each in kept.values()) <= 5000
        monkeypatch.setattr(saga_states, "MOST_BYTES", 2000)
        await write(http, "s5", 1, "running", topic=topic.name)
        found = await states.refreshed(engine, topic, on_a_thread)
        assert "s5" in found and len(found) < 5


async def test_a_state_that_is_too_large_to_be_shown() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        await write(http, "a", 1, "running", input="tea")
        assert await listed(http) == [("a", "running")]
        await write(http, "a", 2, "completed", input="x" * 300_000)
        assert await listed(http) == [("a", "completed")], "its status is the last one"
        shown = answered(await http.get("/v1/sagas/order/a"))
        assert (shown["status"], shown["version"], shown["input"]) == ("completed", 2, None)
        assert "more than 262144 are not shown" in shown["left_out"]
        await write(http, "a", 3, "completed", results=[])
        assert "not one of a runner" in answered(await http.get("/v1/sagas/order/a"))["left_out"]


async def test_permissions() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        await with_topic(admin)
        await write(admin, "a", 1, "running")
        assert answered(await ann.get("/v1/sagas"))["items"] == []
        for path in ("/v1/sagas/order", "/v1/sagas/order/a", "/v1/sagas/missing"):
            answered(await ann.get(path), 403)
        read = {"principal": "User:ann", "operation": "read", "kind": "topic", "name": TOPIC}
        answered(await admin.post("/v1/acls", json={"acls": [read]}), 201)
        assert await listed(ann) == [("a", "running")]
