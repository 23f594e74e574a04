"""Requests that another broker of the cluster has to answer: the one that holds a scope."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from posthouse.model.address import Address
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import Scope


class RelayedConnection(Protocol):
    """To the holder of a scope, in the name of one client. Opened when the first request is sent."""

    def send(self, request: bytes | memoryview) -> asyncio.Future[bytes]:
        """The response, which comes in the order of the requests; both without the length before them.

        Fails with Unavailable if the holder cannot be reached, or is lost before it has answered.
        """

    @property
    def held(self) -> int:
        """Bytes of memory for a response that is incomplete."""

    def pause_reading(self) -> None:
        """Back-pressure on the holder: the client does not read its responses, or memory is short."""

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Requests that wait fail with Unavailable."""


class Relay(Protocol):
    """Of a broker that is not alone."""

    def open(
        self,
        listener: str,
        client: Address,
        user: ProvenUser | None,
        grown: Callable[[], None],
        scope: Scope,
    ) -> RelayedConnection:
        """`listener` is the name of the setting; `user` has logged in here, None if login is not required.
        The other broker closes the connection if it would not admit the user: then requests fail.
        `grown` is called when an incomplete response has grown and is large."""

    async def connect(
        self, listener: str, client: Address, user: ProvenUser | None, scope: Scope
    ) -> socket.socket:
        """A connection to the listener of the same name of the holder, for one request of any protocol. The
        caller closes it. Raises Unavailable."""
