"""Consumers that ask for much and take nothing hold no more than the budget, and others are served."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from bench import wire
from bench.scale.asking import fetch_request
from posthouse.protocols.budget import SMALL
from posthouse.protocols.kafka.connection import KafkaConnection
from posthouse.protocols.listener import PARTLY_SENT
from posthouse.testing import AsyncBroker

MIB = 1024 * 1024
BUDGET = 16 * MIB
CONSUMERS = 40
TOPIC = "topic"
LOG_BYTES = 8 * MIB
"""More than one answer may have, whatever is left of the budget."""


@asynccontextmanager
async def stalled(broker: AsyncBroker, topic: bytes) -> AsyncIterator[socket.socket]:
    request = wire.frame(fetch_request(topic, 0, wait_ms=100, max_bytes=50 * MIB))
    consumer = socket.socket()
    consumer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    consumer.setblocking(False)
    host, _, port = broker.kafka.rpartition(":")
    loop = asyncio.get_running_loop()
    with consumer:
        await loop.sock_connect(consumer, (host, int(port)))
        await loop.sock_sendall(consumer, request * 20)
        yield consumer


def write_log(port: int, batch_bytes: int) -> bytes:
    wire.topic_id(port, TOPIC)
    topic = wire.topic_id(port, TOPIC)
    batch = wire.batch(1000, batch_bytes)
    wire.push(port, [wire.produce_frame(topic, 0, batch)], LOG_BYTES, 8)
    return topic


@pytest.mark.parametrize("batch_bytes", [2_000, 500_000])
async def test_they_hold_no_more_than_the_budget(batch_bytes: int) -> None:
    async with AsyncBroker(inflight_bytes=BUDGET, default_partitions=1) as broker, AsyncExitStack() as stack:
        port = int(broker.kafka.rpartition(":")[2])
        topic = await asyncio.to_thread(write_log, port, batch_bytes)
        for _ in range(CONSUMERS):
            await stack.enter_async_context(stalled(broker, topic))
        held = before = -1
        least = BUDGET - CONSUMERS * (PARTLY_SENT + SMALL) - batch_bytes
        while held != before or held < least:  # they ask until nothing more is given
            before, held = held, unsent(broker)
            await asyncio.sleep(0.3)
        # What may come beside: one answer that was allowed just before it was spent, and short ones.
        assert held <= BUDGET + batch_bytes + MIB + CONSUMERS * SMALL
        # Somebody else is answered meanwhile.
        assert await asyncio.wait_for(asyncio.to_thread(wire.topic_id, port, TOPIC), 30) == topic


def unsent(broker: AsyncBroker) -> int:
    connections = [each for each in broker.app.connections if isinstance(each, KafkaConnection)]
    return sum(each._transport.get_write_buffer_size() for each in connections)
