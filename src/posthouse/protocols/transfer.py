"""Connections of clients that have logged in here, and that another broker of the cluster serves: the one
that holds a scope."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from posthouse.model.address import Address
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import Scope
from posthouse.protocols.listener import Connection, Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredClient:
    """A client's connection as its protocol leaves it, with nothing unsent."""

    connection: Connection
    """Has served it so far."""
    listener: Listener
    transport: asyncio.Transport
    address: Address
    received: bytes
    """What the holder is sent first."""
    farewell: bytes
    """What the client is told if the holder is lost before it has sent anything."""
    left: Callable[[], None]
    """Called when the client's connection is lost."""


class ReachedHolder(Protocol):
    """A connection to the holder of a scope, in the name of one client. One of its methods is called."""

    def serve(self, client: TransferredClient) -> None:
        """Pass the bytes of both sides on from now on."""

    def close(self) -> None:
        """The client does not need it any more."""


class Transfer(Protocol):
    """Of a broker that is not alone."""

    async def reach(
        self, listener: str, client: Address, user: ProvenUser | None, scope: Scope
    ) -> ReachedHolder:
        """Waits for some seconds while no broker holds the scope. `listener` is the name of the setting;
        `user` has logged in here, None if login is not required. Raises Unavailable."""
