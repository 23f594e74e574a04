"""A gRPC server of test handlers on a listener, without a broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from posthouse.model.clock import SystemClock
from posthouse.protocols.budget import Budget
from posthouse.protocols.gate import Gate
from posthouse.protocols.grpc.calls import BidiCall, StreamingCall, UnaryCall
from posthouse.protocols.grpc.connection import GrpcConnection
from posthouse.protocols.grpc.methods import Methods
from posthouse.protocols.grpc.server import GrpcLimits, GrpcServer
from posthouse.protocols.grpc.status import GrpcError, Status
from posthouse.protocols.listener import Listener
from posthouse.protocols.request_metrics import RequestMetrics
from posthouse.protocols.tls import Certificates
from posthouse.settings import Address

DEADLINE = 60
MIB = 1024 * 1024


@dataclass(eq=False)
class Handlers:
    """What they were told, and what they wait for."""

    seen: list[Any] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    later: list[UnaryCall] = field(default_factory=list)
    pushed: list[BidiCall] = field(default_factory=list)

    def note(self, what: Any) -> None:
        self.seen.append(what)
        self.changed.set()

    async def noted(self, what: Any) -> None:
        async with asyncio.timeout(DEADLINE):
            while what not in self.seen:
                self.changed.clear()
                await self.changed.wait()

    def echo(self, call: UnaryCall, request: bytes) -> None:
        call.connection.prove()
        call.answer(request)

    async def slow_echo(self, call: UnaryCall, request: bytes) -> bytes:
        await asyncio.sleep(0)
        return request

    async def size(self, call: UnaryCall, request: bytes) -> bytes:
        return str(len(request)).encode()

    def answered_later(self, call: UnaryCall, request: bytes) -> None:
        self.later.append(call)
        self.note("asked")

    def cancellable(self, call: UnaryCall, request: bytes) -> None:
        call.on_cancel = partial(self.note, "let go")
        self.note("asked")

    async def waiting(self, call: UnaryCall, request: bytes) -> bytes:
        self.note("waiting")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.note("cancelled")
            raise
        return request

    async def failing(self, call: UnaryCall, request: bytes) -> bytes:
        match request:
            case b"known":
                raise GrpcError(Status.NOT_FOUND, "100 % größer\nnot here")
            case b"none":
                return None  # type: ignore[return-value]
            case b"itself":
                call.fail(Status.ABORTED, "by itself")
                return b"ignored"
            case b"long":
                raise GrpcError(Status.ABORTED, "ü" * 100_000)
        raise RuntimeError("on purpose")

    def failing_at_once(self, call: UnaryCall, request: bytes) -> None:
        if request == b"known":
            raise GrpcError(Status.NOT_FOUND, "at once")
        raise RuntimeError("on purpose")

    async def metadata(self, call: UnaryCall, request: bytes) -> bytes:
        value = call.metadata.get(request.decode())
        return b"-" if value is None else value.encode()

    async def remaining(self, call: UnaryCall, request: bytes) -> bytes:
        return str(call.remaining()).encode()

    async def repeated(self, call: StreamingCall, request: bytes) -> None:
        """COUNT SIZE, sent so often."""
        count, size = map(int, request.split())
        for each in range(count):
            await call.send(each.to_bytes(4) + bytes(size - 4))
            self.seen.append(each)

    async def failing_midway(self, call: StreamingCall, request: bytes) -> None:
        await call.send(b"first")
        raise GrpcError(Status.DATA_LOSS, "midway")

    async def endless(self, call: StreamingCall, request: bytes) -> None:
        try:
            while True:
                await call.send(bytes(10_000))
                await asyncio.sleep(0)
                self.seen.append("sent")
        except asyncio.CancelledError:
            self.note("cancelled")
            raise

    async def chat(self, call: BidiCall) -> None:
        self.pushed.append(call)
        try:
            async for message in call:
                if message == b"stop":
                    return
                if message == b"fail":
                    raise GrpcError(Status.INVALID_ARGUMENT, "as asked")
                await call.send(message.upper())
            self.note("client has ended")
        except asyncio.CancelledError:
            self.note("cancelled")
            raise

    async def unread(self, call: BidiCall) -> None:
        """Reads when it may go."""
        await self.go.wait()
        total = 0
        async for message in call:
            total += len(message)
        await call.send(str(total).encode())

    def methods(self) -> Methods:
        methods = Methods()
        for name in (
            *("echo", "slow_echo", "size", "answered_later", "cancellable", "waiting", "failing"),
            *("failing_at_once", "metadata", "remaining"),
        ):
            methods.unary(f"/test/{name}", getattr(self, name))
        for name in ("repeated", "failing_midway", "endless"):
            methods.streaming(f"/test/{name}", getattr(self, name))
        for name in ("chat", "unread"):
            methods.bidi(f"/test/{name}", getattr(self, name))
        return methods


@dataclass(frozen=True, eq=False)
class Served:
    handlers: Handlers
    listener: Listener
    server: GrpcServer
    requests: RequestMetrics
    budget: Budget
    address: Address

    @property
    def target(self) -> str:
        return f"localhost:{self.address.port}"

    async def connections(self, count: int) -> list[GrpcConnection]:
        async with asyncio.timeout(DEADLINE):
            while len(self.listener) != count:
                await asyncio.sleep(0.001)
        return [each for each in self.listener if isinstance(each, GrpcConnection)]


@asynccontextmanager
async def serving(
    *,
    limits: GrpcLimits | None = None,
    buffer_bytes: int = 8 * MIB,
    inflight_bytes: int = 256 * MIB,
    certificates: Certificates | None = None,
    open_session: Any = None,
) -> AsyncIterator[Served]:
    handlers = Handlers()
    clock = SystemClock()
    budget = Budget(inflight_bytes)
    requests = RequestMetrics()
    server = GrpcServer(
        handlers.methods(),
        protocol="test",
        budget=budget,
        requests=requests,
        is_behind=lambda: False,
        now_ms=lambda: 0,
        buffer_bytes=buffer_bytes,
        limits=limits,
        open_session=open_session,
    )
    listener = Listener("test", partial(GrpcConnection, server, None), Gate(clock, total=100))
    offered = None if certificates is None else certificates.offering("h2")
    address = await listener.start(Address("127.0.0.1", 0), offered, tls_is_optional=True)
    try:
        yield Served(handlers, listener, server, requests, budget, address)
    finally:
        listener.close()
        listener.abort()
        await listener.drained(10)
