"""The header Idempotency-Key: the first answer again, or a refusal, and never a second append."""

import asyncio
import json
from collections.abc import AsyncIterator

import aio_pika
import httpx
import pytest

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client
from tests.protocols.admin.ingest.stored_records import stored

ORDERS = "/v1/topics/orders/records"
OCTETS = {"content-type": "application/octet-stream"}


def keyed(key: str) -> dict[str, str]:
    return {"idempotency-key": key}


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker() as running:
        yield running


@pytest.fixture
async def http(broker: AsyncBroker) -> AsyncIterator[httpx.AsyncClient]:
    async with client(broker) as found:
        answered(await found.post("/v1/topics", json={"name": "orders", "partitions": 4}), 201)
        yield found


async def test_the_first_answer_comes_again(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    records = [{"key": str(each), "value": f"{each}"} for each in range(9)] + [{"value": "no key"}]
    first = answered(await http.post(ORDERS, json=records, headers=keyed("k")))
    assert "repeated" not in first
    lines = "\n".join(map(json.dumps, records))
    in_other_forms = [
        await http.post(ORDERS, json={"records": records}, headers=keyed('"k"')),
        await http.post(ORDERS, content=lines, headers=keyed("k") | {"content-type": "application/x-ndjson"}),
    ]
    for each in in_other_forms:
        assert answered(each) == first | {"repeated": True}
    assert len(await stored(broker.app.broker)) == 10


async def test_another_request_with_the_key_is_refused(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    answered(await http.post(ORDERS, json={"key": "a", "value": "1"}, headers=keyed("k")))
    others = (
        {"key": "a", "value": "2"},
        {"key": "b", "value": "1"},
        {"key": "a", "value": "1", "headers": [{"name": "x"}]},
        {"key": "a", "value": "1", "partition": 3},
        {"key": "a", "value": "1", "timestamp": 5},
    )
    for each in others:
        found = answered(await http.post(ORDERS, json=each, headers=keyed("k")), 422)
        assert "'k' was used for another request" in found["detail"]
        assert found["error"] == "IdempotencyKeyReused"
    assert len(await stored(broker.app.broker)) == 1
    answered(await http.post(ORDERS, json=others[0], headers=keyed("l")))


async def test_many_at_once_are_one(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(
        *(http.post(ORDERS, content=b"x", headers=OCTETS | keyed("k")) for _ in range(10))
    )
    found = [answered(each) for each in answers]
    assert sum("repeated" not in each for each in found) == 1
    assert len({json.dumps(each["records"]) for each in found}) == 1
    assert len(await stored(broker.app.broker)) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "ä".encode(), '""'])
async def test_a_key_that_is_none(http: httpx.AsyncClient, key: str | bytes) -> None:
    headers = httpx.Headers([(b"idempotency-key", key if isinstance(key, bytes) else key.encode())])
    headers.update(OCTETS)
    found = answered(await http.post(ORDERS, content=b"x", headers=headers), 400)
    assert found["detail"] == "an idempotency key has 1 to 255 printable characters of ASCII"


async def test_what_was_refused_has_not_used_the_key(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    too_large = [{"value": "a", "partition": 0}, {"value": "x" * 1_500_000, "partition": 1}]
    answered(await http.post(ORDERS, json=too_large, headers=keyed("k")), 413)
    assert await stored(broker.app.broker) == []
    found = answered(await http.post(ORDERS, json=too_large[:1], headers=keyed("k")))
    assert found["records"][0]["offset"] == 0


async def test_a_compacted_topic(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    body = {"name": "latest", "partitions": 2, "settings": {"cleanup.policy": "compact"}}
    answered(await http.post("/v1/topics", json=body), 201)
    records = [{"key": str(each), "value": "x" * 600} for each in range(10)]
    first, again = [
        answered(await http.post("/v1/topics/latest/records", json=records, headers=keyed("k")))
        for _ in range(2)
    ]
    assert again == first | {"repeated": True}
    without_key = [{"value": "no key"}]
    refused = await http.post("/v1/topics/latest/records", json=without_key, headers=keyed("l"))
    answered(refused, 400)
    assert len(await stored(broker.app.broker, "latest")) == 10


async def test_a_queue_gets_the_message_once(broker: AsyncBroker, http: httpx.AsyncClient) -> None:
    async with await aio_pika.connect_robust(f"amqp://guest:guest@{broker.amqp}/") as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("mails", durable=True)
        answered(await http.post("/v1/topics", json={"name": "mails", "partitions": 1}), 201)
        for _ in range(3):
            answered(await http.post("/v1/topics/mails/records", content=b"hi", headers=OCTETS | keyed("k")))
        message = await queue.get(timeout=30)
        assert message is not None and message.body == b"hi"
        await message.ack()
        assert await queue.get(fail=False, timeout=5) is None


async def test_users_have_keys_of_their_own() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "admin") as admin:
        answered(await admin.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        acl = Acl(principal="User:ann", operation=Operation.WRITE, kind=Kind.TOPIC, name="orders")
        await broker.app.broker.access.acls.add([acl])
        async with client(broker, "ann") as ann:
            for number, http in enumerate((admin, ann)):
                body = {"value": str(number)}
                found = answered(await http.post(ORDERS, json=body, headers=keyed("k")))
                assert found == {"records": [{"partition": 0, "offset": number, "error": None}]}


async def test_no_room_for_another_key() -> None:
    async with AsyncBroker(idempotency_keys_max=1) as broker, client(broker) as http:
        answered(await http.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        answered(await http.post(ORDERS, content=b"x", headers=OCTETS | keyed("1")))
        found = answered(await http.post(ORDERS, content=b"x", headers=OCTETS | keyed("2")), 503)
        assert found["error"] == "TooManyKeys"
        metrics = (await http.get("/metrics")).text
        assert "posthouse_idempotency_keys 1" in metrics
        assert "posthouse_idempotency_refused_total 1" in metrics
        answered(await http.post(ORDERS, content=b"x", headers=OCTETS | keyed("1")))
        answered(await http.post(ORDERS, content=b"x", headers=OCTETS))
