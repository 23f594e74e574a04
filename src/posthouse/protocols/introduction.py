"""Connections that need more than a plain transport: they were passed on by another broker, or need a lease.

`Introduction` is the first protocol of such a connection. It wraps the transport, and hands the connection
over to its real protocol. Other connections have neither.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable
from uuid import UUID

from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import Scope
from posthouse.settings import Address

FORWARDER = "forwarder"
"""Name of the extra information: the address of the broker that has passed the connection on."""
RELAYED_BY = "relayed_by"
"""Name of the extra information: the incarnation of the broker that relays the requests, or has transferred
the connection."""
RELAYED_FOR = "relayed_for"
"""Name of the extra information: the scope for which that broker relays."""
RELAYED_USER = "relayed_user"
"""Name of the extra information: the user that has logged in at that broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Of a connection that another broker has made for a client."""

    client: Address
    relayed_by: UUID | None = None
    """The incarnation of the other broker if the client has not made the connection: the other broker relays
    single requests, which it has received with or without TLS, and sends them without. Or it has transferred
    the client's connection, and has done the login."""
    is_transferred: bool = False
    """With `relayed_by`: the connection is transferred, so all that the client sends comes on it."""
    relayed_for: Scope | None = None
    """With `relayed_by`: the scope that this broker holds, if the other one knows what to do with requests
    that are refused because it does not any more."""
    user: ProvenUser | None = None
    """With `relayed_by`: has logged in there."""


@runtime_checkable
class Dismissable(Protocol):
    """A connection whose protocol has words for a broker that may not answer any more."""

    def dismiss(self) -> None:
        """Tell the client if it takes that without a wait, and close. No-op if it was told already."""


class Introduction(asyncio.Protocol):
    def __init__(
        self,
        protocol: asyncio.BaseProtocol,
        may_answer: Callable[[], bool],
        origin: Origin | None,
    ) -> None:
        """`origin` is None unless another broker has passed the connection on."""
        self._protocol = protocol
        self._may_answer = may_answer
        self._origin = origin

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        plain.set_protocol(self._protocol)
        dismiss = self._protocol.dismiss if isinstance(self._protocol, Dismissable) else plain.abort
        self._protocol.connection_made(GuardedTransport(plain, self._may_answer, dismiss, self._origin))


class GuardedTransport(asyncio.Transport):
    """Sends nothing when the broker may not answer any more: then the connection is dismissed, and nothing is
    sent again, though the broker may get its lease back: what was not sent would be missing.

    The check is where bytes leave, so it covers the answers of all protocols, whatever caused them: a
    request, a timer, or a message of another client.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        may_answer: Callable[[], bool],
        dismiss: Callable[[], None],
        origin: Origin | None,
    ) -> None:
        """`dismiss` closes the connection. It is called later, because a write comes from inside of it."""
        super().__init__()
        self._transport = transport
        self._may_answer = may_answer
        self._dismiss = dismiss
        self._origin = origin
        self._is_mute = False

    @property
    def unguarded(self) -> asyncio.Transport:
        """For a connection that this broker does not answer any more, because another one does."""
        return self._transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._may_write():
            self._transport.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        if self._may_write():
            self._transport.writelines(list_of_data)

    def _may_write(self) -> bool:
        if not self._is_mute and not self._may_answer():
            self._is_mute = True
            asyncio.get_running_loop().call_soon(self._dismiss)
        return not self._is_mute

    def write_last(self, data: bytes | bytearray | memoryview) -> None:
        """Write what needs no lease, because it answers nothing: that the broker closes the connection."""
        self._transport.write(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if self._origin is not None:
            if name == "peername":
                return (self._origin.client.host, self._origin.client.port)
            if name == RELAYED_BY:
                return self._origin.relayed_by
            if name == RELAYED_USER:
                return self._origin.user
            if name == RELAYED_FOR:
                return self._origin.relayed_for
            if name == FORWARDER:
                return Address.of_peer(self._transport.get_extra_info("peername"))
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def abort(self) -> None:
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        self._transport.write_eof()
