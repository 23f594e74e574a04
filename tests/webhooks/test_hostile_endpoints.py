"""Endpoints that answer what no server should: they fail, cost little, and harm nobody else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.webhooks.receivers import pushing_broker, receiver
from tests.webhooks.scenes import create_topic, lag, produce, until, webhook

GARBAGE = (
    (b"", "ended the connection"),
    (b"HTTP/1.1 200", "ended the connection"),
    (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "not HTTP"),
    (b"HTTP/1.1 200 OK\r\nx" + b"y" * 200_000, "not HTTP"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n", "not HTTP"),
    (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000, "again and again"),
    (b"HTTP/1.1 99 Low\r\n\r\n", "not HTTP"),
)


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[int]:
    """Answers every request with these bytes, and ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        except OSError:
            pass  # the broker has seen enough
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.mark.parametrize(("answer", "says"), GARBAGE)
async def test_garbage_is_a_failure(answer: bytes, says: str) -> None:
    async with pushing_broker() as started, raw_server(answer) as port, receiver() as other:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(f"http://127.0.0.1:{port}/"))
        await broker.webhooks.create(webhook(other.url, "other"))
        await produce(broker, (None, b"1"))
        await until(lambda: lag(broker) == 0)
        state = broker.webhooks.state("hook")
        assert state is not None and state.last_failure is not None
        assert says in state.last_failure.reason
        assert (state.dead, state.in_flight) == (1, 0)
        await until(lambda: lag(broker, "other") == 0)
        assert other.bodies == [b"1"]


async def test_a_body_that_is_cut_off_does_not_undo_its_status() -> None:
    cut_off = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort"
    async with pushing_broker() as started, raw_server(cut_off) as port:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(f"http://127.0.0.1:{port}/"))
        await produce(broker, (None, b"1"))
        await until(lambda: lag(broker) == 0)
        state = broker.webhooks.state("hook")
        assert state is not None
        assert (state.delivered, state.failed_requests) == (1, 0)
