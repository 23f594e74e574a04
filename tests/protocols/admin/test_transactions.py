"""Transactions by HTTP: the open ones listed, a hanging one aborted."""

import pytest

from posthouse.model.errors import ProducerFenced
from posthouse.testing import AsyncBroker
from tests.protocols.admin import transactional
from tests.protocols.admin.clients import USERS, answered, client


async def test_a_hanging_transaction_is_found_and_aborted() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        inner = broker.app.broker
        answered(await http.post("/v1/topics", json={"name": "t", "partitions": 2}), 201)
        producer = await transactional.write(inner, "hanging", "t", "x", partition=1)
        [found] = answered(await http.get("/v1/transactions"))["items"]
        assert (found["id"], found["state"], found["timeout_ms"]) == ("hanging", "ongoing", 60_000)
        assert (found["producer_id"], found["producer_epoch"]) == (producer.producer_id, producer.epoch)
        assert found["partitions"] == [{"topic": "t", "partition": 1}]
        assert 0 <= found["age_ms"] < 60_000
        aborted = answered(await http.post("/v1/transactions/hanging/abort"))
        assert (aborted["state"], aborted["producer_epoch"]) == ("aborted", producer.epoch + 1)
        bounds = inner.bounds(inner.topic("t"), 1)
        assert bounds.stable == bounds.end
        with pytest.raises(ProducerFenced):
            await transactional.end(inner, "hanging", producer, commit=True)
        assert answered(await http.get("/v1/transactions"))["items"] == []
        assert answered(await http.get("/v1/transactions?all=true"))["total"] == 1
        answered(await http.post("/v1/transactions/hanging/abort"), 409)
        answered(await http.post("/v1/transactions/unknown/abort"), 404)


async def test_an_id_with_a_slash() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answered(await http.post("/v1/topics", json={"name": "t", "partitions": 1}), 201)
        await transactional.write(broker.app.broker, "job/1", "t", "x")
        answered(await http.post("/v1/transactions/job%2F1/abort"))


async def test_what_a_user_sees_of_transactions() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        answered(await admin.post("/v1/topics", json={"name": "t", "partitions": 1}), 201)
        await transactional.write(broker.app.broker, "others", "t", "x")
        assert answered(await ann.get("/v1/transactions"))["items"] == []
        answered(await ann.post("/v1/transactions/others/abort"), 403)
        assert answered(await admin.get("/v1/transactions"))["total"] == 1
