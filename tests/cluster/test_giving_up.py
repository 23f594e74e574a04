"""The scope coordinator is given up in good order, or its broker stops."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import Unavailable
from posthouse.node_coordinator import CoordinatorScope
from posthouse.protocols.scope_moves import ScopeMoves


class Server:
    """It cannot be unloaded when it is interrupted."""

    def __init__(self) -> None:
        self.is_stepping_down = asyncio.Event()

    async def coordinate(self) -> None: ...

    async def step_down(self) -> None:
        self.is_stepping_down.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unavailable("another broker has taken over") from None


class Campaign:
    async def run(self, scopes: object) -> None:
        await asyncio.Event().wait()


class Scopes:
    lease = SimpleNamespace(scopes={}, holds=lambda scope: True)

    async def give_up(self, scope: object) -> None: ...


async def test_a_broker_that_stops_meanwhile_does_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of what could not be unloaded replaces the cancellation: it must not be lost."""
    node: Any = SimpleNamespace(own=SimpleNamespace(name="a"), clock=ManualClock(), moves=ScopeMoves())
    server, scopes, campaign = Server(), Scopes(), Campaign()
    made: Any = CoordinatorScope(node, scopes, campaign, server)  # type: ignore[arg-type]
    made.held = SimpleNamespace(epoch=1)
    monkeypatch.setattr(made, "_is_wanted", lambda: False)
    running = asyncio.create_task(made.run())
    await server.is_stepping_down.wait()
    running.cancel()
    await asyncio.wait([running], timeout=30)
    assert running.cancelled()
