"""One request and its place in the order of its connection."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from posthouse.broker.access.guard import Guard
from posthouse.model.scopes import Scope
from posthouse.protocols.kafka.codec.primitives import Buffer, Message
from posthouse.protocols.kafka.login import Login
from posthouse.protocols.kafka.request_origins import ConnectionIdentity
from posthouse.protocols.throttle_timer import Waits

_LINGER_SECONDS = 0.2


class RequestHost(Protocol):
    """The interface of the connection for its pending requests."""

    software: tuple[str, str]
    """Name and version of the client's software, if it has sent them."""

    @property
    def peer(self) -> str:
        """The client's address."""

    @property
    def session(self) -> ConnectionIdentity: ...

    @property
    def guard(self) -> Guard: ...

    @property
    def login(self) -> Login | None: ...

    @property
    def room(self) -> int: ...

    def hold(self, size: int) -> None: ...

    def answered(self, request: "PendingRequest") -> None: ...

    def run(
        self, request: "PendingRequest", coroutine: Coroutine[Any, Any, Message | None]
    ) -> asyncio.Task[Message | None]: ...

    def violated(self, reason: str) -> None: ...

    def close_because(self, reason: str) -> None: ...

    def offended(self) -> None: ...

    def throttle(self, seconds: float, waits: Waits | None = None) -> None: ...

    def finish(self) -> None: ...

    def relay(
        self, request: "PendingRequest", scope: Scope, frame: memoryview | None = None
    ) -> asyncio.Future[bytes]: ...


class PendingRequest:
    __slots__ = ("chunks", "frame", "held", "host", "ready", "size")

    frame: memoryview
    """Set where the request may be relayed."""

    def __init__(self, host: RequestHost, size: int) -> None:
        self.host = host
        self.size = size
        """Bytes of the request."""
        self.chunks: list[Buffer] | None = None
        self.held = 0
        """Bytes of a response that waits for earlier ones."""
        self.ready = False

    @property
    def peer(self) -> str:
        return self.host.peer

    @property
    def software(self) -> tuple[str, str]:
        return self.host.software

    def introduce(self, name: str, version: str) -> None:
        self.host.software = (name, version)

    @property
    def session(self) -> ConnectionIdentity:
        return self.host.session

    @property
    def guard(self) -> Guard:
        return self.host.guard

    @property
    def login(self) -> Login | None:
        return self.host.login

    @property
    def room(self) -> int:
        """Free bytes of the memory budget of all connections."""
        return self.host.room

    def hold(self, size: int) -> None:
        """The response that `run` builds takes `size` bytes of memory."""
        self.host.hold(size)

    def answer(self, chunks: list[Buffer] | None) -> None:
        """Finish the request; None if no response is sent."""
        self.chunks = chunks
        self.ready = True
        self.host.answered(self)

    def run(self, coroutine: Coroutine[Any, Any, Message | None]) -> asyncio.Task[Message | None]:
        """Hold back later requests until `coroutine` is done; it is cancelled with the connection."""
        return self.host.run(self, coroutine)

    def relay(self, scope: Scope, frame: memoryview | None = None) -> asyncio.Future[bytes]:
        """The response of the scope's holder to `frame`, or to the client's own one. See
        `RelayedConnection.send`."""
        return self.host.relay(self, scope, frame)

    def violated(self, reason: str) -> None:
        """Close the connection because the client violated the protocol."""
        self.host.violated(reason)

    def give_up(self, reason: str) -> None:
        """Close the connection, which is the only way to tell the client."""
        self.host.close_because(reason)

    def close_after_answer(self) -> None:
        """Close the connection a moment later: some clients ignore an answer followed by an immediate
        close."""
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.host.finish)

    def offended(self) -> None:
        """Count an offence: the client asked for something that is always refused, and costs time."""
        self.host.offended()

    def throttle(self, seconds: float, waits: Waits) -> None:
        """Stop reading from the client for that long; `waits` counts the time."""
        self.host.throttle(seconds, waits)
