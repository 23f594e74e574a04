"""One forwarded connection, between a client and a holder that do what no library does."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
import uvloop

from posthouse.cluster import forwarding
from posthouse.cluster.dialling import Dialler, ScopeHolder
from posthouse.cluster.forwarding import ForwardedConnection, Forwarding
from posthouse.cluster.peers import PeerListener
from posthouse.cluster.preamble import Passage, RelayPassage
from posthouse.model.address import Address
from posthouse.model.clock import SystemClock
from posthouse.model.scopes import Scope
from posthouse.protocols.gate import Gate
from posthouse.protocols.listener import Listener
from posthouse.protocols.listening import ListeningSockets
from tests.cluster.nodes import until

_SECRET = b"s" * 32


class _HolderNow:
    """What the view of the standby says."""

    def __init__(self, address: Address) -> None:
        self.found: ScopeHolder | None = ScopeHolder(incarnation=uuid4(), address=address)

    def __call__(self, scope: Scope) -> ScopeHolder | None:
        return self.found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passing:
    """A standby, and the sockets that its holder has adopted."""

    standby: Listener
    where: Address
    holder: "_HolderNow"
    adopted: list[socket.socket] = field(default_factory=list)

    async def connected(self) -> tuple[socket.socket, socket.socket, ForwardedConnection]:
        """A client, its socket in the holder, and its connection in the standby."""
        loop = asyncio.get_running_loop()
        client = socket.socket()
        client.setblocking(False)
        await loop.sock_connect(client, (self.where.host, self.where.port))
        await until(lambda: self.adopted and any(each._upstream for each in self.standby))  # type: ignore[attr-defined]
        [connection] = self.standby
        assert isinstance(connection, ForwardedConnection)
        return client, self.adopted[0], connection

    async def swept_until_empty(self, seconds: float) -> None:
        """As the sweep of a standby does it each second, and faster."""
        async with asyncio.timeout(seconds):
            while len(self.standby):
                self.standby.sweep()
                await asyncio.sleep(0.05)


@asynccontextmanager
async def _passing() -> AsyncIterator[_Passing]:
    adopted: list[socket.socket] = []
    listening = await ListeningSockets.bind(Address("127.0.0.1", 0))
    peers = PeerListener(listening, _SECRET, lambda passage: adopted.append)
    peers.start()
    now = _HolderNow(listening.address)
    dialler = Dialler(_SECRET, now)
    standby = Listener("test", Forwarding("kafka", dialler), Gate(SystemClock(), total=10))
    where = await standby.start(Address("127.0.0.1", 0))
    try:
        yield _Passing(standby=standby, where=where, holder=now, adopted=adopted)
    finally:
        for each in adopted:
            each.close()
        standby.abort()
        await peers.close()


async def _fill(sender: socket.socket, most: int) -> int:
    """Send until nothing is taken any more; returns the bytes sent."""
    loop = asyncio.get_running_loop()
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < most:
            await asyncio.wait_for(loop.sock_sendall(sender, bytes(100_000)), 1)
            sent += 100_000
    return sent


async def test_what_a_holder_does_not_take_is_not_buffered_without_limit() -> None:
    async with _passing() as passing:
        client, _, connection = await passing.connected()
        assert await _fill(client, 100_000_000) < 100_000_000
        assert connection._upstream is not None
        assert connection._upstream.transport.get_write_buffer_size() < 1_000_000
        client.close()


async def test_what_a_client_does_not_take_is_not_buffered_without_limit() -> None:
    async with _passing() as passing:
        client, holder, connection = await passing.connected()
        holder.setblocking(False)
        sent = await _fill(holder, 100_000_000)
        assert 0 < sent < 100_000_000
        assert connection.transport.get_write_buffer_size() < 1_000_000
        received = 0
        while received < sent:  # and nothing of it is lost
            received += len(await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1 << 20), 5))
        client.close()


async def test_a_silent_client_does_not_stay_when_the_holder_has_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwarding, "_LINGER_SECONDS", 0.2)
    async with _passing() as passing:
        client, holder, _ = await passing.connected()
        holder.close()
        await until(lambda: not len(passing.standby), 3)
        client.close()


async def test_a_client_that_reads_nothing_does_not_stay_when_the_holder_has_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The standby does not read from the holder then, so it has to look whether the holder is there."""
    monkeypatch.setattr(forwarding, "_LINGER_SECONDS", 3)
    async with _passing() as passing:
        client, holder, _ = await passing.connected()
        holder.setblocking(False)
        await _fill(holder, 100_000_000)
        for _ in range(20):
            passing.standby.sweep()
        await asyncio.sleep(0.1)
        assert len(passing.standby) == 1
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        holder.close()
        await passing.swept_until_empty(3)
        client.close()


async def test_a_client_that_reads_nothing_does_not_stay_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "_LINGER_SECONDS", 3)
    monkeypatch.setattr(forwarding, "_UNREAD_SECONDS", 6)
    async with _passing() as passing:
        client, holder, _ = await passing.connected()
        holder.setblocking(False)
        await _fill(holder, 100_000_000)
        await passing.swept_until_empty(3)
        client.close()


async def test_the_system_closes_connections_whose_other_machine_is_gone() -> None:
    async with _passing() as passing:
        client, _, connection = await passing.connected()
        assert connection._upstream is not None
        for transport in (connection.transport, connection._upstream.transport):
            used = transport.get_extra_info("socket")
            assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 300_000
        client.close()


async def test_connections_to_an_old_holder_end_when_another_is_known() -> None:
    """The old one may be cut off from the database, and keep them."""
    async with _passing() as passing:
        client, _, _ = await passing.connected()
        before, passing.holder.found = passing.holder.found, None
        passing.standby.sweep()
        passing.holder.found = before
        passing.standby.sweep()
        await asyncio.sleep(0.1)
        assert len(passing.standby) == 1
        passing.holder.found = ScopeHolder(incarnation=uuid4(), address=None)
        passing.standby.sweep()
        await until(lambda: not len(passing.standby), 3)
        client.close()


def _run_as_served(talk: Coroutine[Any, Any, None]) -> None:
    """In the event loop of a served broker, which raises where asyncio's forgives. Errors in callbacks, which
    it only logs, fail the test."""
    errors: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, found: errors.append(found))
        await talk

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(watched())
    assert errors == []


class _SpeakingHolder:
    """Reached when its client has just gone; it has spoken already."""

    patience_seconds = 1.0

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self._ours = socket.create_connection(listening.getsockname())
            self.theirs, _ = listening.accept()
        self.theirs.send(b"hello")
        self.standby: Listener | None = None

    async def dial(self, passage: Passage | RelayPassage) -> tuple[socket.socket, UUID]:
        assert self.standby is not None
        for each in self.standby:
            each.abort()
        return self._ours, uuid4()


def test_what_the_holder_says_to_a_client_that_has_just_gone_is_dropped() -> None:
    async def talk() -> None:
        holder = _SpeakingHolder()
        standby = Listener(
            "test",
            Forwarding("amqp", holder),  # type: ignore[arg-type]
            Gate(SystemClock(), total=10),
        )
        holder.standby = standby
        where = await standby.start(Address("127.0.0.1", 0))
        _, writer = await asyncio.open_connection(where.host, where.port)
        await until(lambda: _is_closed(holder.theirs))
        await until(lambda: not len(standby))
        writer.close()
        holder.theirs.close()
        standby.abort()

    _run_as_served(talk())


def _is_closed(other: socket.socket) -> bool:
    try:
        return other.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_clients_that_reset_their_connection_before_it_is_served_leave_nothing() -> None:
    async def talk() -> None:
        async with _passing() as passing:
            with socket.create_connection((passing.where.host, passing.where.port)) as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gate = passing.standby._gate
            await until(lambda: gate.counters.accepted == 1 and not passing.standby._shaking_hands)
            await until(lambda: not passing.standby._arriving and not len(passing.standby))

    _run_as_served(talk())
