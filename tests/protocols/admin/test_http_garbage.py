"""Bytes that are nearly HTTP: answered or closed, never with a crash, and the next client is served."""

import asyncio
import random

import pytest

from posthouse.listener_settings import Address
from posthouse.testing import AsyncBroker
from tests.alarms import alarms

GOOD = (
    b"GET /v1/topics?limit=5&search=a HTTP/1.1\r\nhost: localhost\r\nauthorization: Basic YTpi\r\n\r\n"
    b"POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: 15\r\nauthorization: Basic YTpi\r\n\r\n"
    b'{"name":"some"}'
    b"POST /v1/topics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b'transfer-encoding: chunked\r\n\r\n8\r\n{"name":\r\n7\r\n"chunk"\r\n1\r\n}\r\n0\r\n\r\n'
    b"DELETE /v1/topics/some HTTP/1.1\r\nhost: localhost\r\nauthorization: Basic YTpi\r\n\r\n"
    b"HEAD /health/ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
)
EXAMPLES = 300


def spoiled(source: random.Random) -> bytes:
    data = bytearray(GOOD)
    for _ in range(source.randint(1, 6)):
        at = source.randrange(len(data))
        match source.randrange(4):
            case 0:
                data[at] = source.randrange(256)
            case 1:
                del data[at : at + source.randint(1, 30)]
            case 2:
                data[at:at] = source.randbytes(source.randint(1, 30))
            case _:
                data[at:at] = data[at : at + source.randint(1, 200)]
    return bytes(data)


@pytest.mark.parametrize("users", [None, {"a": "b"}], ids=["open", "guarded"])
async def test_nearly_http(users: dict[str, str] | None, caplog: pytest.LogCaptureFixture) -> None:
    source = random.Random(13)
    async with AsyncBroker(users=users, offender_wait_seconds=0) as broker:
        for _ in range(EXAMPLES):
            answer = await asyncio.wait_for(exchanged(broker, spoiled(source)), 60)
            assert b"HTTP/1.1 500 " not in answer
        answer = await exchanged(broker, GOOD)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1 ") == 5, "those of the good requests"
    assert not [each for each in alarms(caplog) if each.exc_info]


async def exchanged(broker: AsyncBroker, data: bytes) -> bytes:
    where = Address.parse(broker.admin)
    reader, writer = await asyncio.open_connection(where.host, where.port)
    try:
        writer.write(data)
        writer.write_eof()
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
