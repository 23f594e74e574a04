"""A listener whose system has nothing left to give: it waits, and goes on. One that closes loses none."""

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast
from uuid import uuid4

import pytest
import uvloop

from posthouse.model.address import Address
from posthouse.model.clock import SystemClock
from posthouse.protocols import listener as listener_module
from posthouse.protocols.connection_info import ConnectionInfo
from posthouse.protocols.gate import Gate
from posthouse.protocols.introduction import Origin
from posthouse.protocols.listener import Listener
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire

SECONDS = 60


class Accepting:
    """Fails with an error for some time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._accept = socket.socket.accept
        self.error: OSError | None = None
        self.failures = 0
        monkeypatch.setattr(socket.socket, "accept", self._replaced())

    def _replaced(self) -> Any:
        def accept(listening: socket.socket) -> Any:
            if self.error is not None:
                self.failures += 1
                raise self.error
            return self._accept(listening)

        return accept


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EPROTO, errno.EPERM])
async def test_errors_of_accept_neither_spin_the_loop_nor_end_the_listener(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    monkeypatch.setattr(listener_module, "_REST_SECONDS", 0.05)
    accepting = Accepting(monkeypatch)
    async with AsyncBroker() as broker, asyncio.timeout(SECONDS):
        accepting.error = OSError(number, "of a kind")
        async with Wire(broker.kafka) as wire:  # the system's queue has it
            begun = asyncio.get_running_loop().time()
            while accepting.failures < 3:
                await asyncio.sleep(0.01)
            waited = asyncio.get_running_loop().time() - begun
            assert accepting.failures <= waited / 0.05 + 2
            accepting.error = None
            await wire.create_topic("t")
    assert caplog.text.count("cannot accept connections, retrying: of a kind") == 1


async def test_whoever_has_shown_nothing_gives_its_descriptor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    accepting = Accepting(monkeypatch)
    async with (
        AsyncBroker() as broker,
        asyncio.timeout(SECONDS),
        Wire(broker.kafka) as useful,
        Wire(broker.kafka) as silent,
    ):
        await useful.create_topic("t")
        while len(broker.app.connections) < 2:
            await asyncio.sleep(0.01)
        accepting.error = OSError(errno.EMFILE, "of descriptors")
        async with Wire(broker.kafka):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await silent.receive_frame()
            accepting.error = None
        await useful.create_topic("u")


class Joining(asyncio.Protocol):
    """Ends the listener just before it joins it, or just afterwards."""

    peer = "a client"

    def __init__(self, listener: Listener, end: Callable[[Listener], None], *, before: bool) -> None:
        self._listener = listener
        self._end = end
        self._before = before
        if before:
            asyncio.get_running_loop().call_soon(end, listener)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._listener.join(self):
            self._transport.abort()
        elif not self._before:
            self._end(self._listener)

    @property
    def info(self) -> ConnectionInfo:
        return ConnectionInfo(peer=self.peer, protocol="test", since_ms=0)

    def finish(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def tick(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.leave(self)


ENDS: list[Callable[[Listener], None]] = [Listener.close, Listener.abort]


@pytest.mark.parametrize("before", [False, True], ids=["joined", "joins"])
@pytest.mark.parametrize("end", ENDS, ids=["close", "abort"])
def test_a_connection_that_joins_a_listener_that_ends_is_not_forgotten(
    end: Callable[[Listener], None], before: bool
) -> None:
    """With the event loop of a served broker: see `Listener._give_up_handshakes`."""

    async def talk() -> None:
        gate = Gate(SystemClock(), total=10)
        listener = Listener("test", lambda joined: Joining(joined, end, before=before), gate)
        where = await listener.start(Address("127.0.0.1", 0))
        reader, writer = await asyncio.open_connection(where.host, where.port)
        assert await asyncio.wait_for(reader.read(), SECONDS) == b""
        await listener.drained(SECONDS)
        assert len(listener) == 0
        assert len(gate) == 0
        writer.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(talk())


async def test_clients_are_those_that_no_other_broker_serves() -> None:
    def do_nothing(listener: Listener) -> None: ...

    listener = Listener(
        "test", lambda joined: Joining(joined, do_nothing, before=False), Gate(SystemClock(), total=10)
    )
    where = await listener.start(Address("127.0.0.1", 0))
    client = Address("10.0.0.1", 1)
    origins = (
        Origin(client=client, relayed_by=uuid4()),
        Origin(client=client, relayed_by=uuid4(), is_transferred=True),
        Origin(client=client),
    )
    with ExitStack() as sockets:
        for number, origin in enumerate((None, *origins), 1):
            if origin is None:
                sockets.enter_context(socket.create_connection((where.host, where.port)))
            else:
                with socket.create_server(("127.0.0.1", 0)) as listening:
                    sockets.enter_context(socket.create_connection(listening.getsockname()))
                    there, _ = listening.accept()
                listener.adopt(there, origin)
            async with asyncio.timeout(SECONDS):
                while len(listener) < number:
                    await asyncio.sleep(0.01)
        own, relayed, transferred, forwarded = listener
        assert list(listener.clients()) == [own, transferred, forwarded]
        listener.pass_on(own)
        assert list(listener.clients()) == [transferred, forwarded]
        assert relayed in list(listener)
        listener.abort()
        await listener.drained(SECONDS)
