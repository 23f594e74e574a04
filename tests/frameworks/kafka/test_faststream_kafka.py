"""FastStream's Kafka brokers, on aiokafka and on confluent-kafka: applications as their users write them."""

import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from faststream import AckPolicy, FastStream
from pydantic import BaseModel

from posthouse.settings import Address
from posthouse.testing import AsyncBroker
from tests.frameworks.kafka.seen import Seen

Make = Callable[[], Any]


class Order(BaseModel):
    id: int
    amount: float


@pytest.fixture
async def server() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker() as broker:
        yield broker


@pytest.fixture(params=["kafka", "confluent"])
def make(request: pytest.FixtureRequest, server: AsyncBroker) -> Make:
    """A broker of FastStream's, to be given its handlers."""
    module = importlib.import_module(f"faststream.{request.param}")
    kind = module.KafkaBroker
    return lambda: kind(server.kafka, logger=None)


@asynccontextmanager
async def running(broker: Any) -> AsyncIterator[Any]:
    application = FastStream(broker, logger=None)
    await application.start()
    try:
        yield broker
    finally:
        await application.stop()


async def test_orders_become_invoices(make: Make, name: str) -> None:
    """Models, keys, headers, one topic out of another, batches."""
    broker, invoices, batches = make(), Seen(), Seen()

    @broker.publisher(f"{name}-invoices")
    @broker.subscriber(f"{name}-orders", group_id=name, auto_offset_reset="earliest")
    async def bill(order: Order) -> dict[str, Any]:
        return {"order": order.id, "total": order.amount * 1.19}

    @broker.subscriber(f"{name}-invoices", group_id=name, auto_offset_reset="earliest")
    async def file(invoice: dict[str, Any]) -> None:
        await invoices.add(invoice)

    @broker.subscriber(f"{name}-lines", group_id=f"{name}-lines", auto_offset_reset="earliest", batch=True)
    async def print_lines(lines: list[str]) -> None:
        for line in lines:
            await batches.add(line)

    async with running(broker):
        for number in range(5):
            await broker.publish(
                Order(id=number, amount=100), f"{name}-orders", key=b"customer", headers={"from": "test"}
            )
        await broker.publish_batch("one", "two", "three", topic=f"{name}-lines")
        await invoices.has(5)
        await batches.has(3)
    assert [invoice["order"] for invoice in invoices] == list(range(5))
    assert {invoice["total"] for invoice in invoices} == {119.0}
    assert sorted(batches) == ["one", "three", "two"]


def worker(broker: Any, name: str) -> Seen:
    """Acknowledges what it has worked on."""
    seen = Seen()

    @broker.subscriber(name, group_id=name, auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
    async def work(number: int) -> None:
        await seen.add(number)

    return seen


async def test_a_new_start_goes_on_where_the_last_one_stopped(make: Make, name: str) -> None:
    for numbers in (range(10), range(10, 20)):
        broker = make()
        seen = worker(broker, name)
        async with running(broker):
            for number in numbers:
                await broker.publish(number, name, key=b"one")
            await seen.has(10)
        assert seen == list(numbers)


async def test_what_fails_comes_again_and_then_goes_to_the_dead_letters(make: Make, name: str) -> None:
    broker, attempts, dead = make(), Seen(), Seen()

    @broker.subscriber(name, group_id=name, auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR)
    async def work(value: str) -> None:
        await attempts.add(value)
        if value == "once" and attempts.count("once") == 1:
            raise RuntimeError("not at the first time")
        if value == "never":
            if attempts.count("never") < 3:
                raise RuntimeError("never")
            await broker.publish(value, f"{name}-dead")

    @broker.subscriber(f"{name}-dead", group_id=name, auto_offset_reset="earliest")
    async def bury(value: str) -> None:
        await dead.add(value)

    async with running(broker):
        for value in ("fine", "once", "never", "last"):
            await broker.publish(value, name, key=b"one")
        await dead.has(1)
        await attempts.has(7)
    assert attempts == ["fine", "once", "once", "never", "never", "never", "last"]
    assert dead == ["never"]


@pytest.mark.parametrize("kind", ["kafka", "confluent"])
async def test_an_application_outlives_the_broker(kind: str, name: str, tmp_path: Path) -> None:
    module = importlib.import_module(f"faststream.{kind}")
    async with AsyncBroker(data=tmp_path) as server:
        address = Address.parse(server.kafka)
        broker = module.KafkaBroker(str(address), logger=None)
        seen = worker(broker, name)
        application = FastStream(broker, logger=None)
        await application.start()
        await broker.publish(1, name)
        await seen.has(1)
    async with AsyncBroker(data=tmp_path, kafka=address):
        await broker.publish(2, name)
        await seen.includes(2)  # the first may come again: its acknowledgement was on its way
        await application.stop()
