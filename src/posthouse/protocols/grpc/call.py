"""One call, whatever its kind: its request, its handler at work, and its end.

A call ends once: by the handler (an answer, a failure, its return), or from outside (the client has reset
it, its deadline has passed, the connection is lost or finishes). After that nothing is sent for it. If it
ends from outside its task is cancelled, or `on_cancel` is called.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from posthouse.model.address import Address
from posthouse.protocols.authenticator import PeerIdentity
from posthouse.protocols.grpc.http2.connection import Http2Connection
from posthouse.protocols.grpc.http2.streams import Stream
from posthouse.protocols.grpc.messages import MessageReader
from posthouse.protocols.grpc.metadata import Metadata
from posthouse.protocols.grpc.room import Room
from posthouse.protocols.grpc.status import GrpcError, Status, only_trailers
from posthouse.protocols.request_metrics import ApiMetrics
from posthouse.protocols.throttle_timer import ThrottleTimer

log = logging.getLogger(__name__)


class Session(Protocol):
    """What the application keeps for a connection."""

    def close(self) -> None:
        """The connection is lost."""

    def tick(self) -> None:
        """Called once a second."""


class Caller(Protocol):
    """The connection of a client, as far as handlers need it."""

    identity: PeerIdentity
    address: Address
    """Where clients reach the broker."""
    session: Session
    is_finishing: bool
    """Whether the broker stops: nobody is to wait for anything any more."""

    @property
    def peer(self) -> str: ...

    @property
    def has_tls(self) -> bool: ...

    @property
    def throttle(self) -> ThrottleTimer:
        """While it is on, nothing is read from the client."""

    def prove(self) -> None:
        """The client has logged in, or made a good request if logins are not required."""

    def offended(self) -> float: ...

    def abort(self) -> None: ...

    def describe(self, client: str, user: str | None = None) -> None:
        """What people are shown of the client."""


class Carrier(Caller, Protocol):
    """The connection, as far as calls need it."""

    http2: Http2Connection
    room: Room
    loop: asyncio.AbstractEventLoop

    def assembling(self, change: int) -> None:
        """Count bytes of messages that are incomplete, or not taken by a handler."""

    def in_flight(self, change: int) -> None:
        """Count bytes of unary requests that are not answered."""

    def begun(self) -> None:
        """A handler works for a call."""

    def done(self) -> None:
        """A handler is done with a call, which may have ended long before."""


class Call:
    __slots__ = (
        "_begun",
        "_carrier",
        "_handler",
        "_has_room",
        "_held",
        "_is_working",
        "_message",
        "_reader",
        "_stream",
        "_task",
        "deadline",
        "is_ended",
        "metadata",
        "metrics",
        "name",
        "on_cancel",
    )

    def __init__(
        self,
        carrier: Carrier,
        stream: Stream,
        name: str,
        handler: Callable[..., Any],
        metadata: Metadata,
        metrics: ApiMetrics,
        reader: MessageReader,
        begun: float,
        deadline: float | None,
    ) -> None:
        self._carrier = carrier
        self._stream = stream
        self._handler = handler
        self._reader = reader
        self._begun = begun
        self._task: asyncio.Task[Any] | None = None
        self._message: bytes | None = None
        """Complete, but the stream has not ended."""
        self._held = 0
        """Bytes that the connection counts for this call."""
        self._has_room = False
        """It has asked for room."""
        self._is_working = False
        """Its handler was called, and is not done."""
        self.name = name
        self.metadata = metadata
        self.metrics = metrics
        self.deadline = deadline
        self.is_ended = False
        self.on_cancel: Callable[[], object] | None = None

    @property
    def connection(self) -> Caller:
        return self._carrier

    def remaining(self) -> float | None:
        """Seconds until the client stops waiting; None if it waits for ever."""
        return None if self.deadline is None else max(self.deadline - self._carrier.loop.time(), 0.0)

    # The request

    def received(self, data: bytes) -> None:
        """Data of the stream has come, or its end."""
        raise NotImplementedError

    def _read(self, data: bytes) -> list[tuple[bytes, int]]:
        """Messages that are complete now, and their bytes. None after a failure."""
        reader = self._reader
        before = reader.held
        try:
            messages = reader.feed(data)
        except GrpcError as error:
            self._count(-before)
            reader.forget()
            self.fail(error.status, error.text)
            return []
        self._count(reader.held - before)
        self._ask_for_room()
        if self._stream.is_remote_ended and reader.held:
            self.fail(Status.INTERNAL, "the request ends in the middle of a message")
            return []
        return messages

    @property
    def waits_for_client(self) -> bool:
        """For the rest of a message, which the client may send."""
        return self._reader.held > 0 and self._stream.receive_window > 0

    def _only(self, data: bytes) -> bytes | None:
        """The one message of the request, once that has ended. It stays counted."""
        messages = self._read(data)
        if self.is_ended:
            return None
        if len(messages) + (self._message is not None) > 1:
            self.fail(Status.UNIMPLEMENTED, f"{self.name} takes one message")
            return None
        if messages:
            self._message = messages[0][0]
            self._count(len(self._message))
        if not self._stream.is_remote_ended:
            return None
        if self._message is None:
            self.fail(Status.UNIMPLEMENTED, f"{self.name} needs a message")
            return None
        message, self._message = self._message, None
        return message

    def _ask_for_room(self) -> None:
        missing = self._reader.missing
        if missing > self._stream.receive_window and not self._has_room:
            self._has_room = True
            self._carrier.room.ask(self, missing, self._has_been_granted)

    def _has_been_granted(self) -> None:
        more = self._reader.missing - self._stream.receive_window
        if more > 0:
            self._carrier.http2.extend(self._stream, more)
            self._extended(more)

    def _extended(self, size: int) -> None:
        """The stream's window was opened beyond what was taken."""

    def _count(self, change: int) -> None:
        if change:
            self._held += change
            self._carrier.assembling(change)

    # The handler

    def _work(self, *arguments: Any) -> None:
        self._is_working = True
        self._carrier.begun()
        try:
            result = self._handler(self, *arguments)
        except Exception as error:  # noqa: BLE001 - told apart there
            self._failed(error)
            return
        if result is not None:
            self._start(result)

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        if self.is_ended:  # by the function that has made the coroutine
            coroutine.close()
            self._done()
            return
        self._task = task = self._carrier.loop.create_task(coroutine)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: "asyncio.Task[Any]") -> None:
        self._task = None
        if task.cancelled():
            if not self.is_ended:
                self.fail(Status.CANCELLED, "the broker has cancelled the call")
            self._done()
        elif (error := task.exception()) is not None:
            self._failed(error)
        else:
            self._returned(task.result())

    def _returned(self, result: Any) -> None:
        """The handler's coroutine is done."""
        raise NotImplementedError

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, GrpcError):
            self.fail(error.status, error.text)
        else:
            log.error("%s of %s failed", self.name, self._carrier.peer, exc_info=error)
            self.fail(Status.INTERNAL, "the broker has failed; its log says why")
        self._done()

    def _done(self) -> None:
        """The handler works no more for this call."""
        if self._is_working:
            self._is_working = False
            self._carrier.done()

    # The end

    def fail(self, status: Status, text: str = "") -> None:
        if not self.is_ended:
            self.metrics.errors += 1
            self._finish(self._failure(status, text))

    def _failure(self, status: Status, text: str) -> bytes:
        return only_trailers(status, text)

    def _finish(self, block: bytes) -> None:
        self._ended()
        self._carrier.http2.sender.end(self._stream, block)

    def _ended(self) -> None:
        self.is_ended = True
        self._stream.call = None
        self._observe()
        if self._held:
            self._count(-self._held)
        if self._has_room:
            self._carrier.room.leave(self)

    def _observe(self) -> None:
        self.metrics.seconds.observe(self._carrier.loop.time() - self._begun)

    def cut_off(self) -> None:
        """The stream is closed from outside: nothing can be sent any more."""
        if not self.is_ended:
            self._ended()
            self._abandon()

    def end_from_outside(self, status: Status, text: str) -> None:
        if not self.is_ended:
            Call.fail(self, status, text)
            self._abandon()

    def _abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif self.on_cancel is not None:
            callback, self.on_cancel = self.on_cancel, None
            self._done()
            callback()
