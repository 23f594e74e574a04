"""A connection to the broker that holds a scope, in the name of a client."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from posthouse.cluster.peer_connection import NOT_CONNECTED, connect
from posthouse.cluster.preamble import ClientPassage
from posthouse.model.address import Address
from posthouse.model.scopes import COORDINATOR, Scope

PATIENCE_SECONDS = 12.0
"""How long a client waits for a holder: a takeover takes up to ten seconds."""
_PAUSE_SECONDS = 0.1


class NoHolder(Exception):
    """No broker could be reached that holds the scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeHolder:
    """The broker that holds a scope, as this one knows it."""

    incarnation: UUID
    address: Address | None
    """Where other brokers reach it; None if it is not among the live brokers."""


class Dialler:
    """Used by all connections of a broker."""

    def __init__(
        self,
        secret: bytes,
        holder: Callable[[Scope], ScopeHolder | None],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`holder` is None while no broker holds the scope."""
        self._secret = secret
        self._holder = holder
        self.patience_seconds = patience_seconds

    def is_succeeded(self, incarnation: UUID, scope: Scope = COORDINATOR) -> bool:
        """Whether another broker than that one is known to hold the scope now."""
        holder = self._holder(scope)
        return holder is not None and holder.incarnation != incarnation

    async def dial(self, passage: ClientPassage) -> tuple[socket.socket, UUID]:
        """A socket on which the bytes of the client may follow, and the incarnation of the broker there.
        Raises NoHolder."""
        scope = passage.scope
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.patience_seconds
        reason = f"no broker is {_role(scope)}"
        while True:
            holder = self._holder(scope)
            if holder is not None and (address := holder.address) is not None:
                try:
                    return await connect(address, self._secret, passage), holder.incarnation
                except NOT_CONNECTED as error:
                    why = str(error) or type(error).__name__
                    reason = f"{_role(scope)} at {address} cannot be reached: {why}"
            if loop.time() > deadline:
                raise NoHolder(reason)
            await asyncio.sleep(_PAUSE_SECONDS)


def _role(scope: Scope) -> str:
    return "the coordinator" if scope == COORDINATOR else f"the holder of {scope}"
