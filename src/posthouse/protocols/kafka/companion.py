"""The companion of a client's connection to a member: the way of its requests to the coordinator.

The client's requests stay in order: the coordinator answers those on the companion in their order, and the
connection sends all responses in the order of its requests. A request that the member answers itself may be
started before an earlier one that is relayed has been answered.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from posthouse.model.address import Address
from posthouse.model.proven_user import ProvenUser
from posthouse.protocols.relay import RelayedConnection

MOST_IN_FLIGHT = 100
"""Requests that are relayed at the same time. Flow control counts their bytes; each needs memory besides, and
they may wait long for a coordinator."""

OpenCompanion = Callable[[Address, ProvenUser | None], RelayedConnection]
"""See `Relay.open`, for the listener of the connection."""


class Companion:
    __slots__ = ("_connection", "_in_flight")

    def __init__(self, connection: RelayedConnection) -> None:
        self._connection = connection
        self._in_flight = 0

    @property
    def is_full(self) -> bool:
        """Whether no request of the client may be started until one is answered."""
        return self._in_flight >= MOST_IN_FLIGHT

    def send(self, request: memoryview) -> asyncio.Future[bytes]:
        self._in_flight += 1
        answered = self._connection.send(request)
        answered.add_done_callback(self._answered)
        return answered

    async def settled(self, answered: asyncio.Future[bytes]) -> Any:
        """Wait for the answer to the newest request: all earlier ones are answered then. Cancelling it does
        not cancel the answer."""
        await asyncio.wait([answered])

    def _answered(self, answered: asyncio.Future[bytes]) -> None:
        self._in_flight -= 1

    def close(self) -> None:
        self._connection.close()
