"""Clients that mean harm, on sockets: connections end, and hold little until then."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import pack

import pytest
from hpack import Encoder

from posthouse.protocols.grpc.http2.frames import PREFACE, frame
from posthouse.protocols.grpc.server import GrpcLimits
from posthouse.protocols.pace import SLOW_SECONDS
from tests.protocols.grpc.served import DEADLINE, MIB, Served, serving

GREETING = PREFACE + frame(4, 0, 0)


class Raw:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder = Encoder()

    def request(self, stream: int, name: str, *headers: tuple[str, str]) -> bytes:
        block = self.encoder.encode(
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", f"/test/{name}"),
                ("content-type", "application/grpc"),
                *headers,
            ]
        )
        return frame(1, 4, stream, block)

    async def frame(self, kind: int, stream: int = 0) -> bytes:
        """The payload of the next frame of that type and stream."""
        async with asyncio.timeout(DEADLINE):
            while True:
                head = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(int.from_bytes(head[:3]))
                if head[3] == kind and int.from_bytes(head[5:]) == stream:
                    return payload

    async def is_closed(self) -> bool:
        async with asyncio.timeout(DEADLINE):
            try:
                while await self.reader.read(100_000):
                    continue
            except ConnectionResetError:
                return True
        return True


@asynccontextmanager
async def raw(served: Served) -> AsyncIterator[Raw]:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.address.port)
    writer.write(GREETING)
    yield Raw(reader, writer)
    writer.close()


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x16\x03\x01" + bytes(50), b"PRI * HTTP/2.0\r\n\r\nXX"],
)
async def test_clients_of_something_else(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as served, asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.address.port)
        writer.write(data)
        answer = await reader.read()
        assert b"does not speak HTTP/2" in answer
        writer.close()
        assert served.listener._gate.counters.offences >= 1
    assert "does not speak HTTP/2" in caplog.text


async def test_a_flood_is_told_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as served, raw(served) as client:
        client.writer.write(frame(2, 0, 1, bytes(5)) * 20_000)
        assert (await client.frame(7))[4:8] == pack(">I", 11)
        assert await client.is_closed()
    assert "too many frames without content" in caplog.text


async def test_resets_do_not_start_ever_more_handlers() -> None:
    limits = GrpcLimits(max_streams=10)
    async with serving(limits=limits) as served, raw(served) as client:
        for each in range(1, 101, 2):
            client.writer.write(client.request(each, "answered_later"))
            client.writer.write(frame(0, 1, each, pack(">BI", 0, 1) + b"x") + frame(3, 0, each, bytes(4)))
        assert await client.frame(3, 41) == pack(">I", 7)
        assert len(served.handlers.later) == 20
        for call in served.handlers.later:
            call.answer(b"late")
        client.writer.write(client.request(201, "echo") + frame(0, 1, 201, bytes(5)))
        assert await client.frame(0, 201) == bytes(5)


async def test_bombs_wait_until_others_are_answered() -> None:
    bomb = gzip.compress(bytes(MIB))
    async with serving(buffer_bytes=2 * MIB) as served, raw(served) as client:
        for each in range(1, 101, 2):
            client.writer.write(client.request(each, "answered_later", ("grpc-encoding", "gzip")))
            client.writer.write(frame(0, 1, each, pack(">BI", 1, len(bomb)) + bomb))
        [connection] = await served.connections(1)
        answered = 0
        async with asyncio.timeout(DEADLINE):
            while answered < 50:
                assert connection._flow.in_flight <= 3 * MIB
                while served.handlers.later:
                    served.handlers.later.pop().answer(b"")
                    answered += 1
                await asyncio.sleep(0)
        assert connection._flow.in_flight == 0


async def test_calls_that_never_begin_are_counted() -> None:
    async with serving() as served, raw(served) as client:
        for each in range(1, 1001, 2):
            client.writer.write(client.request(each, "echo"))
        [connection] = await served.connections(1)
        async with asyncio.timeout(DEADLINE):
            while len(connection.http2.streams) < 500:
                await asyncio.sleep(0.001)
        assert connection.info.held_bytes >= 500 * 1024
        for each in range(1, 1001, 2):
            client.writer.write(frame(3, 0, each, bytes(4)))
        async with asyncio.timeout(DEADLINE):
            while connection.info.held_bytes:
                await asyncio.sleep(0.001)


async def test_a_client_without_windows_gets_no_more_calls() -> None:
    async with serving(buffer_bytes=MIB) as served, raw(served) as client:
        client.writer.write(frame(4, 0, 0, pack(">HI", 4, 0)))
        sent = pack(">BI", 0, 60_000) + bytes(60_000)
        pieces = [sent[at : at + 16_384] for at in range(0, len(sent), 16_384)]
        for each in range(1, 101, 2):
            client.writer.write(client.request(each, "echo"))
            for index, piece in enumerate(pieces):
                client.writer.write(frame(0, index == len(pieces) - 1, each, piece))
        assert await client.frame(3, 99) == pack(">I", 7)
        [connection] = await served.connections(1)
        assert connection._held() < 2 * MIB
        client.writer.write(frame(4, 0, 0, pack(">HI", 4, MIB)) + frame(8, 0, 0, pack(">I", 100 * MIB)))
        assert len(await client.frame(0, 1)) > 0
        async with asyncio.timeout(DEADLINE):
            while connection._held():
                await asyncio.sleep(0.001)


async def test_a_slow_sender_is_closed() -> None:
    async with serving() as served, raw(served) as client:
        client.writer.write(frame(1, 4, 1, b"\x82")[:5])
        [connection] = await served.connections(1)
        while not connection.http2.held:
            await asyncio.sleep(0.001)
        for _ in range(SLOW_SECONDS):
            served.listener.sweep()
        assert await client.is_closed()


async def test_a_slow_sender_of_a_message_is_closed() -> None:
    async with serving() as served, raw(served) as client:
        client.writer.write(client.request(1, "echo") + frame(0, 0, 1, pack(">BI", 0, 100) + b"x"))
        [connection] = await served.connections(1)
        while not connection._assembled:
            await asyncio.sleep(0.001)
        for _ in range(SLOW_SECONDS):
            served.listener.sweep()
        assert await client.is_closed()


async def test_a_client_that_is_silent_between_messages_stays() -> None:
    async with serving() as served, raw(served) as client:
        client.writer.write(client.request(1, "chat") + frame(0, 0, 1, pack(">BI", 0, 1) + b"x"))
        assert await client.frame(0, 1) == pack(">BI", 0, 1) + b"X"
        for _ in range(2 * SLOW_SECONDS):
            served.listener.sweep()
        client.writer.write(frame(0, 0, 1, pack(">BI", 0, 1) + b"y"))
        assert await client.frame(0, 1) == pack(">BI", 0, 1) + b"Y"


@pytest.mark.parametrize(
    ("method", "kind", "status"),
    [
        ("GET", "application/grpc", b"405"),
        ("POST", "text/html", b"415"),
        ("POST", "application/grpcx", b"415"),
    ],
)
async def test_requests_of_http(method: str, kind: str, status: bytes) -> None:
    async with serving() as served, raw(served) as client:
        headers = [(":method", method), (":scheme", "http"), (":path", "/test/echo"), ("content-type", kind)]
        client.writer.write(frame(1, 5, 1, client.encoder.encode(headers)))
        assert status in await client.frame(1, 1)


@pytest.mark.parametrize(
    "sent", [b"", bytes(10), pack(">BI", 0, 5) + b"abc", pack(">BI", 1, 1) + b"x", b"\x07\0\0\0\0"]
)
async def test_requests_that_are_not_one_message(sent: bytes) -> None:
    async with serving() as served, raw(served) as client:
        for stream, name in ((1, "echo"), (3, "repeated")):
            client.writer.write(client.request(stream, name) + frame(0, 1, stream, sent))
            assert b"grpc-status\x02" in await client.frame(1, stream)
        [connection] = await served.connections(1)
        assert connection._assembled == connection._working == 0
