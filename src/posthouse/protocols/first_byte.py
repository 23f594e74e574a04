"""The first byte of a connection, without taking it: it tells TLS from protocols without.

A TLS handshake begins with 22. No protocol whose listener looks for that may begin with the same byte: the
others here do not, as they begin with a letter, or with a length whose highest byte is small.
"""

import asyncio
import socket
from typing import Final

_HANDSHAKE: Final = b"\x16"


async def begins_with_tls(client: socket.socket) -> bool:
    """Waits until the client has sent something, or has closed its side. The caller limits the time."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return client.recv(1, socket.MSG_PEEK) == _HANDSHAKE
        except (BlockingIOError, InterruptedError):
            await _readable(loop, client)


async def _readable(loop: asyncio.AbstractEventLoop, client: socket.socket) -> None:
    arrived: asyncio.Future[None] = loop.create_future()

    def arrive() -> None:
        if not arrived.done():
            arrived.set_result(None)

    loop.add_reader(client, arrive)
    try:
        await arrived
    finally:
        loop.remove_reader(client)
