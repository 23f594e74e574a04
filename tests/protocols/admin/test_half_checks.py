"""Checks of half messages by HTTP: who waits for them gets them, once each, and only what is theirs."""

import asyncio
from base64 import b64decode
from typing import Any

import httpx
import pytest

from posthouse.broker.half_messages import checks
from posthouse.protocols.admin import half_checks
from posthouse.testing import AsyncBroker
from tests.broker.due_checks import make_due
from tests.protocols.admin.clients import USERS, answered, client
from tests.protocols.admin.test_half_messages import prepare, with_topic

PATH = "/v1/half-messages/checks"


async def taken(http: httpx.AsyncClient, **query: Any) -> list[Any]:
    found = answered(await http.get(f"{PATH}/billing", params=query))
    return list(found["checks"])


async def until_taken(http: httpx.AsyncClient, **query: Any) -> list[Any]:
    async with asyncio.timeout(60):
        while not (found := await taken(http, wait_ms=5000, **query)):
            pass
    return found


async def test_who_waits_is_told() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        waiting = asyncio.create_task(until_taken(http))
        headers = [{"name": "trace", "value": "7f3a"}, {"name": "none"}]
        await prepare(http, key="ann", name="n", headers=headers, check_after_seconds=0)
        [check] = await waiting
        assert (check["id"], check["name"], check["topics"]) == (0, "n", ["t"])
        assert (b64decode(check["key"]), b64decode(check["value"])) == (b"ann", b"paid")
        assert check["headers"] == [{"name": "trace", "value": "N2YzYQ=="}, {"name": "none", "value": None}]
        [listed] = answered(await http.get("/v1/half-messages"))["items"]
        assert listed["checks"] == 1
        assert await taken(http) == [], "it is given to one producer"
        answered(await http.post("/v1/half-messages/0/commit"))


async def test_what_was_due_before_its_producer_came() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        for number in range(3):
            await prepare(http, name=str(number), check_after_seconds=0)
        await prepare(http, name="later", check_after_seconds=3600)
        await prepare(http, name="other", group="other", check_after_seconds=0)
        unasked = broker.app.broker.half_messages._checks._unasked
        async with asyncio.timeout(60):
            while sum(map(len, unasked.values())) < 4:
                await asyncio.sleep(0.01)
        found = await until_taken(http, limit=2)
        while len(found) < 3:
            found += await until_taken(http, limit=2)
        assert sorted(each["name"] for each in found) == ["0", "1", "2"]
        assert list(unasked) == ["other"]


async def test_a_message_that_was_decided_meanwhile_is_not_given() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        assert await taken(http) == []
        await prepare(http, check_after_seconds=0)
        make_due(broker.app.broker.half_messages)
        await broker.app.broker.half_messages.check()
        answered(await http.post("/v1/half-messages/0/rollback"))
        assert await taken(http) == []


async def test_checks_that_nobody_has_taken_do_not_count() -> None:
    """A producer that is busy with others gets to them, however long that takes."""
    async with AsyncBroker() as broker, client(broker) as http:
        half_messages = broker.app.broker.half_messages
        await with_topic(http)
        assert await taken(http) == [], "a producer is there"
        for number in range(5):
            await prepare(http, name=str(number), check_after_seconds=3600)
        for _ in range(2 * checks.MOST_CHECKS):
            make_due(half_messages)
            await half_messages.check()
        first = await taken(http, limit=2)
        assert [each["name"] for each in first] == ["0", "1"]
        listed = answered(await http.get("/v1/half-messages"))["items"]
        assert [each["checks"] for each in listed] == [1, 1, 0, 0, 0]
        assert [each["name"] for each in await taken(http)] == ["2", "3", "4"]


async def test_what_was_taken_and_never_decided_is_parked() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        half_messages = broker.app.broker.half_messages
        await with_topic(http)
        assert await taken(http) == []
        await prepare(http, check_after_seconds=3600)
        for _ in range(checks.MOST_CHECKS):
            make_due(half_messages)
            await half_messages.check()
            assert len(await taken(http)) == 1
        make_due(half_messages)
        await half_messages.check()
        async with asyncio.timeout(60):
            while len(half_messages):
                await asyncio.sleep(0.01)
        assert (await taken(http), half_messages.parked) == ([], 1)


async def test_large_messages_share_no_answer() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http, settings={"max.message.bytes": "3000000"})
        assert await taken(http) == []
        for number in range(4):
            await prepare(http, name=str(number), value="x" * 1_500_000, check_after_seconds=0)
        found: list[Any] = []
        sizes: list[int] = []
        while len(found) < 4:
            found += (some := await until_taken(http))
            sizes.append(len(some))
        assert sorted(each["name"] for each in found) == ["0", "1", "2", "3"] and max(sizes) <= 2


async def test_who_may_not_write_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not count as a producer."""
    monkeypatch.setattr(checks, "CHECK_SECONDS", 0.1)
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        await with_topic(admin)
        await prepare(admin, check_after_seconds=0)
        assert await taken(ann, wait_ms=2000) == []
        [listed] = answered(await admin.get("/v1/half-messages"))["items"]
        assert listed["checks"] == 0
        write = {"principal": "User:ann", "operation": "write", "kind": "topic", "name": "t"}
        answered(await admin.post("/v1/acls", json={"acls": [write]}), 201)
        [check] = await until_taken(ann)
        assert check["id"] == 0


@pytest.mark.parametrize(("grace", "status"), [(10.0, 503), (-1.0, 200)])
async def test_too_many_groups(grace: float, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose producers are gone are forgotten."""
    monkeypatch.setattr(half_checks, "MOST_GROUPS", 1)
    monkeypatch.setattr(half_checks, "GRACE_SECONDS", grace)
    async with AsyncBroker() as broker, client(broker) as http:
        assert await taken(http) == []
        answered(await http.get(f"{PATH}/another"), status)


async def test_a_broker_that_is_not_alone_refuses() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        broker.app.broker.half_messages._is_alone = False
        answered(await http.get(f"{PATH}/g"), 400)
