"""AMQP consumers that take nothing of what they are sent: together they hold no more than the budget."""

import asyncio

from bench.queues import loads
from bench.queues.connection import Connection
from bench.queues.workers import Tally
from bench.scale.overload_amqp import consuming
from posthouse.protocols.amqp.connection import AmqpConnection
from posthouse.protocols.budget import SMALL
from posthouse.testing import AsyncBroker

MIB = 1024 * 1024
BUDGET = 8 * MIB
CONSUMERS = 20
BODY = 10_240
MESSAGES = 4_000
QUEUE = "queue"


def fill(port: int) -> None:
    with Connection(port) as connection:
        connection.declare_queue(QUEUE)
    loads.publish(port, "", QUEUE, BODY, MESSAGES, Tally())


async def test_they_hold_no_more_than_the_budget() -> None:
    async with AsyncBroker(inflight_bytes=BUDGET) as broker:
        port = int(broker.amqp.rpartition(":")[2])
        await asyncio.to_thread(fill, port)
        consumers = [await asyncio.to_thread(consuming, port, QUEUE) for _ in range(CONSUMERS)]
        held = before = -1
        while held != before or held <= 0:  # until nothing more is delivered
            before, held = held, unsent(broker)
            await asyncio.sleep(0.3)
        # What may come beside: 512 messages that were allowed before it was spent, and short ones.
        assert held <= BUDGET + 512 * BODY + CONSUMERS * (SMALL + 4 * BODY) + MIB
        # Somebody else is served meanwhile.
        assert await asyncio.wait_for(asyncio.to_thread(is_served, port), 30)
        for consumer in consumers:
            consumer.close()


def is_served(port: int) -> bool:
    with Connection(port) as connection:
        connection.declare_queue("other")
        return connection.waiting("other") == 0


def unsent(broker: AsyncBroker) -> int:
    connections = [each for each in broker.app.connections if isinstance(each, AmqpConnection)]
    return sum(each._outbox.unsent for each in connections)
