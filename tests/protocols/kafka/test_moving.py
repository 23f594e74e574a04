"""Connections that move from one app to another: nothing that a client has sent is lost or answered twice."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest
import uvloop

from posthouse.app import App
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import SystemClock
from posthouse.model.topics import Topic
from posthouse.protocols.introduction import Origin
from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.listener import Connection
from posthouse.storage.memory.engine import MemoryStorage
from tests.protocols.kafka.wire import create_topic_request, fetch_request
from tests.served import on_any_port
from tests.wire.kafka import RequestEncoder


class Move:
    """Two apps; `move` stops the first, and the second goes on with its connections."""

    async def start(self) -> None:
        self.first = App(on_any_port(memory=True), storage=MemoryStorage(SystemClock()))
        self.second = App(on_any_port(memory=True), storage=MemoryStorage(SystemClock()))
        await self.first.start()
        await self.second.start()
        address = self.first.listeners["kafka"]
        self.reader, self.writer = await asyncio.open_connection(address.host, address.port)

    async def move(self) -> int:
        """How many connections moved."""
        moved: list[tuple[str, socket.socket, Origin]] = []
        await self.first.stop(drain_seconds=5, take=lambda *each: moved.append(each))
        for name, taken, origin in moved:
            listener = self.second.listener(name)
            assert listener is not None
            listener.adopt(taken, origin)
        return len(moved)

    async def correlation_id(self) -> int:
        size = int.from_bytes(await asyncio.wait_for(self.reader.readexactly(4), 30))
        return int.from_bytes((await self.reader.readexactly(size))[:4])

    async def stop(self) -> None:
        self.writer.close()
        await self.second.stop()


@pytest.fixture
async def move() -> AsyncIterator[Move]:
    made = Move()
    await made.start()
    yield made
    await made.stop()


def frame(encoder: RequestEncoder, request: Message) -> bytes:
    return b"".join(map(bytes, encoder.encode(request)[0]))


@pytest.mark.parametrize("sent", [0, 2, 4, 9, 40_000])
async def test_an_incomplete_request_is_answered_by_the_second(move: Move, sent: int) -> None:
    large = create_topic_request("orders", 1, {f"unknown-{number}": "x" * 30_000 for number in range(4)})
    whole = frame(RequestEncoder("test"), large)
    move.writer.write(whole[:sent])
    await move.writer.drain()
    await _settled(move, sent)
    assert await move.move() == 1
    move.writer.write(whole[sent:])
    assert await move.correlation_id() == 1
    assert len(move.second.connections) == 1


async def test_a_long_poll_ends_and_requests_behind_it_go_on(move: Move) -> None:
    encoder = RequestEncoder("test")
    [topic] = await move.first.broker.create_topics([NewTopic(name="orders", partitions=1)])
    assert isinstance(topic, Topic)
    waits = fetch_request((topic.id, 0, 0), max_wait_ms=600_000, min_bytes=1)
    move.writer.write(frame(encoder, waits))
    move.writer.write(frame(encoder, ListGroupsRequest()) + frame(encoder, ListGroupsRequest()))
    await _settled(move, 1)
    assert await move.move() == 1
    assert [await move.correlation_id() for _ in range(3)] == [1, 2, 3]
    move.writer.write(frame(encoder, ApiVersionsRequest()))
    assert await move.correlation_id() == 4
    assert len(move.second.connections) == 1


def test_a_client_that_has_just_reset_its_connection_does_not_keep_others_from_moving() -> None:
    """It is accepted then, and has no address. With the event loop of a served broker."""

    async def reset_and_move() -> None:
        move = Move()
        await move.start()
        await _settled(move, 0)
        listener = move.first.listener("kafka")
        assert listener is not None
        join = listener.join
        moving: asyncio.Future[asyncio.Task[int]] = asyncio.get_running_loop().create_future()

        def joined(connection: Connection) -> bool:
            moving.set_result(asyncio.create_task(move.move()))
            return join(connection)

        listener.join = joined  # type: ignore[method-assign]
        address = move.first.listeners["kafka"]
        with socket.create_connection((address.host, address.port)) as resetting:
            resetting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert await (await asyncio.wait_for(moving, 30)) >= 1
        move.writer.write(frame(RequestEncoder("test"), ApiVersionsRequest()))
        assert await move.correlation_id() == 1
        await move.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(reset_and_move())


async def _settled(move: Move, sent: int) -> None:
    """The first app has received something, if something was sent."""
    deadline = asyncio.get_running_loop().time() + 30
    while True:
        found = [each.info.received_bytes for each in move.first.connections]
        if found and found[0] >= sent:
            return
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)
