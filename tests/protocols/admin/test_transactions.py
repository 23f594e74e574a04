"""Transactions by HTTP: the open ones listed, a hanging one aborted."""

from typing import Any

import pytest

from posthouse.broker.transactions.producer_starts import NewProducer
from posthouse.model.errors import InvalidTransaction, ProducerFenced
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


TWO_PHASE: dict[str, Any] = {"transaction_two_phase_commit_enable": True}


@pytest.mark.parametrize("commit", [True, False])
async def test_a_two_phase_commit_is_listed_and_decided(commit: bool) -> None:
    async with AsyncBroker(**TWO_PHASE) as broker, client(broker) as http:
        inner = broker.app.broker
        answered(await http.post("/v1/topics", json={"name": "t", "partitions": 1}), 201)
        written = await transactional.write(inner, "pay", "t", "x", two_phase=True)
        [found] = answered(await http.get("/v1/transactions"))["items"]
        assert (found["state"], found["two_phase"], found["timeout_ms"]) == ("ongoing", True, None)
        new = NewProducer(id="pay", timeout_ms=1, expected=written, owner="ann", is_two_phase=True)
        resumed = await inner.transactions.resume_producer(new)
        [found] = answered(await http.get("/v1/transactions"))["items"]
        assert (found["state"], found["two_phase"], found["owner"]) == ("prepared", True, "ann")
        assert (found["producer_id"], found["producer_epoch"]) == (written.producer_id, written.epoch)
        assert found["partitions"] == [{"topic": "t", "partition": 0}] and found["age_ms"] >= 0
        path = f"/v1/transactions/pay/{'commit' if commit else 'abort'}"
        ids = {"producer_id": written.producer_id}
        answered(await http.post(path, params=ids), 400)
        answered(await http.post(path, params=ids | {"producer_epoch": written.epoch + 1}), 409)
        answered(await http.post(path, params=ids | {"producer_epoch": -1}), 400)
        decided = answered(await http.post(path, params=ids | {"producer_epoch": written.epoch}))
        assert decided["state"] == ("committed" if commit else "aborted")
        bounds = inner.bounds(inner.topic("t"), 0)
        assert bounds.stable == bounds.end == 2
        await transactional.end(inner, "pay", resumed.producer, commit=commit)
        with pytest.raises(InvalidTransaction):
            await transactional.end(inner, "pay", resumed.producer, commit=not commit)
        answered(await http.post(path), 409)


async def test_an_ordinary_transaction_is_not_committed() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answered(await http.post("/v1/topics", json={"name": "t", "partitions": 1}), 201)
        await transactional.write(broker.app.broker, "own", "t", "x")
        problem = answered(await http.post("/v1/transactions/own/commit"), 409)
        assert "two-phase" in problem["detail"]
        answered(await http.post("/v1/transactions/unknown/commit"), 404)


async def test_who_may_decide() -> None:
    async with (
        AsyncBroker(users=USERS, **TWO_PHASE) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        answered(await admin.post("/v1/topics", json={"name": "t", "partitions": 1}), 201)
        for decision in ("commit", "abort"):
            await transactional.write(broker.app.broker, decision, "t", "x", two_phase=True)
            acl = {"principal": "User:ann", "kind": "transactional-id", "name": decision}
            for operation in ("write", "two-phase-commit"):
                answered(await ann.post(f"/v1/transactions/{decision}/{decision}"), 403)
                answered(await admin.post("/v1/acls", json={"acls": [{**acl, "operation": operation}]}), 201)
            answered(await ann.post(f"/v1/transactions/{decision}/{decision}"))
