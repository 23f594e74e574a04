"""A hand-over that is cancelled at any moment of it, and connections that end at once."""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop

from posthouse.cluster.attaching import attach


class Told(asyncio.Protocol):
    def __init__(self) -> None:
        self.said: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.said.append("made")

    def connection_lost(self, error: Exception | None) -> None:
        self.said.append("lost")


class LeavesAtOnce(Told):
    """As a relay whose client has left while it was dialled."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).abort()


async def _left_at_once() -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    there.settimeout(30)
    protocol = await attach(here, LeavesAtOnce)
    while protocol.said != ["made", "lost"]:
        await asyncio.sleep(0)
    assert there.recv(1) == b""
    there.close()
    assert here.fileno() == -1, "it would close the descriptor again"


async def _lost_at_once() -> None:
    """The other side resets the connection before the hand-over."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = socket.create_connection(listening.getsockname())
        there, _ = listening.accept()
    here.setblocking(False)
    there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    there.close()
    protocol = await attach(here, Told)
    while protocol.said != ["made", "lost"]:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert here.fileno() == -1, "it would close the descriptor again"


async def _cancelled(iterations: int) -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    there.settimeout(30)
    protocol = Told()
    attaching = asyncio.create_task(attach(here, lambda: protocol))
    for _ in range(iterations):
        await asyncio.sleep(0)
    attaching.cancel()
    [ended] = await asyncio.gather(attaching, return_exceptions=True)
    others = [socket.socketpair() for _ in range(3)]  # one of them may get the descriptor
    for _ in range(10):
        await asyncio.sleep(0)
    for one, other in others:
        one.sendall(b"x")
        assert other.recv(1) == b"x"
        one.close()
        other.close()
    if isinstance(ended, asyncio.CancelledError) and protocol.said:
        assert protocol.said == ["made", "lost"]
    here.close()
    if isinstance(ended, asyncio.CancelledError):
        assert there.recv(1) == b"", "nothing keeps it open"
    there.close()


on_each_loop = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@on_each_loop
@pytest.mark.parametrize("scenario", [_left_at_once, _lost_at_once])
def test_a_connection_that_ends_at_once_is_closed_once(
    run: Callable[[Coroutine[Any, Any, None]], None], scenario: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    run(scenario())


@on_each_loop
@pytest.mark.parametrize("iterations", range(5))
def test_no_descriptor_is_closed_twice(
    run: Callable[[Coroutine[Any, Any, None]], None], iterations: int
) -> None:
    run(_cancelled(iterations))
