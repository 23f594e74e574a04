"""A hand-over that is cancelled, at any moment of it."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

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


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("iterations", range(5))
def test_no_descriptor_is_closed_twice(
    run: Callable[[Coroutine[Any, Any, None]], None], iterations: int
) -> None:
    run(_cancelled(iterations))
