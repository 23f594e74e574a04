"""Connections that are kept alive, and what arrives on them without a request."""

import asyncio
from urllib.parse import urlsplit

import pytest

from posthouse.model.clock import ManualClock
from posthouse.webhooks.allowed_targets import AllowedTargets
from posthouse.webhooks.connecting import Connector, trusting
from posthouse.webhooks.sender import Sender

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
EARLY = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"


async def local(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize("unasked", [OK, EARLY])
@pytest.mark.parametrize("later", [False, True])
async def test_what_no_request_asked_for_is_no_answer_to_the_next_one(unasked: bytes, later: bool) -> None:
    connections = 0
    idle = asyncio.Event()
    sent = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK if later else OK + unasked)
            await idle.wait()
            writer.write(unasked if later else b"")
            await writer.drain()
            sent.set()
            await reader.read()
        else:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK.replace(b"200 OK", b"204 No Content"))
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connector = Connector(local, AllowedTargets(("127.0.0.0/8",)), trusting(None))
    sender = Sender(urlsplit(f"http://127.0.0.1:{port}/"), connector, [], ManualClock())
    try:
        assert (await sender.send("1", [], b"", 30)).status == 200
        kept = list(sender._idle)
        idle.set()
        async with asyncio.timeout(30):
            await sent.wait()
            while any(each.is_usable for each in kept):
                await asyncio.sleep(0)
        assert (await sender.send("2", [], b"", 30)).status == 204
        assert connections == 2
    finally:
        sender.close()
        server.close()
