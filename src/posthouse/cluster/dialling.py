"""A connection to the coordinator of the cluster, in the name of a client."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from posthouse.cluster.peer_connection import NOT_CONNECTED, connect
from posthouse.cluster.preamble import Passage, RelayPassage
from posthouse.model.address import Address

PATIENCE_SECONDS = 12.0
"""How long a client waits for a coordinator: a takeover takes up to ten seconds."""
_PAUSE_SECONDS = 0.1


class NoCoordinator(Exception):
    """No broker could be reached that coordinates the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """The coordinator, as a member knows it."""

    incarnation: UUID
    address: Address | None
    """Where other brokers reach it; None if it is not among the live brokers."""


class Dialler:
    """Used by all connections of a member."""

    def __init__(
        self,
        secret: bytes,
        coordinator: Callable[[], Coordinator | None],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`coordinator` is None while no broker is it."""
        self._secret = secret
        self._coordinator = coordinator
        self.patience_seconds = patience_seconds

    def is_succeeded(self, incarnation: UUID) -> bool:
        """Whether another broker than that one is known to be the coordinator now."""
        coordinator = self._coordinator()
        return coordinator is not None and coordinator.incarnation != incarnation

    async def dial(self, passage: Passage | RelayPassage) -> tuple[socket.socket, UUID]:
        """A socket on which the bytes of the client may follow, and the incarnation of the coordinator there.
        Raises NoCoordinator."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.patience_seconds
        reason = "no broker is the coordinator"
        while True:
            coordinator = self._coordinator()
            if coordinator is not None and (address := coordinator.address) is not None:
                try:
                    return await connect(address, self._secret, passage), coordinator.incarnation
                except NOT_CONNECTED as error:
                    why = str(error) or type(error).__name__
                    reason = f"the coordinator at {address} cannot be reached: {why}"
            if loop.time() > deadline:
                raise NoCoordinator(reason)
            await asyncio.sleep(_PAUSE_SECONDS)
