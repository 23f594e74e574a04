"""Bytes arrive in their order, whole, and not for ever."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.simulation.loop import Loop
from tests.simulation.network import Network
from tests.simulation.world import NS, Process, World

PORT = 1


class Together:
    """A client and a server, each with an event loop of its own."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.network.breaks_up = 0.5
        self.failures: list[Any] = []
        self.client = Loop(Process(self.world, "client"), self.network, self._failed)
        self.server = Loop(Process(self.world, "server"), self.network, self._failed)

    def _failed(self, who: str, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.client.create_task(work)
        self.world.run_until(task.done, limit_ns=1000 * NS)
        task.result()
        assert not self.failures


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_sent_arrives_in_its_order(seed: int) -> None:
    together = Together(seed)
    together.network.listen(together.server, PORT, Echo)

    async def work() -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        sent = [bytes([number]) * number for number in range(1, 100)]
        for each in sent:
            writer.write(each)
        assert await reader.readexactly(sum(map(len, sent))) == b"".join(sent)
        writer.close()

    together.run(work())


def test_both_ends_notice_that_a_connection_is_lost() -> None:
    together = Together(1)
    made: list[Echo] = []

    def make() -> Echo:
        made.append(Echo())
        return made[-1]

    together.network.listen(together.server, PORT, make)

    async def work() -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        writer.write(b"x")
        await reader.readexactly(1)
        [socket] = together.network.clients
        together.network.cut(socket)
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        await asyncio.sleep(1)
        assert made[0].transport.is_closing()
        assert not together.network.clients

    together.run(work())


def test_nobody_listens_where_a_process_is_dead() -> None:
    together = Together(1)
    together.network.listen(together.server, PORT, Echo)

    async def work() -> None:
        reader, _ = await asyncio.open_connection("server", PORT)
        together.server.process.is_dead = True
        together.network.cut_all_of(together.server)
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("server", PORT)

    together.run(work())


def test_a_reader_that_pauses_slows_the_writer() -> None:
    together = Together(1)
    together.network.listen(together.server, PORT, Echo)

    async def work() -> None:
        _, writer = await asyncio.open_connection("server", PORT)
        [socket] = together.network.clients
        writer.transport.set_write_buffer_limits(high=100)
        socket.peer.pause_reading()
        writer.write(bytes(1000))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await writer.drain()
        socket.peer.resume_reading()
        await writer.drain()
        writer.close()

    together.run(work())


def test_a_paused_process_does_everything_later() -> None:
    together = Together(1)
    together.network.listen(together.server, PORT, Echo)

    async def work() -> None:
        reader, writer = await asyncio.open_connection("server", PORT)
        together.server.process.pause(10)
        began = together.client.time()
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        assert together.client.time() - began >= 10
        writer.close()

    together.run(work())


def test_a_world_in_which_nothing_happens_is_noticed() -> None:
    together = Together(1)
    with pytest.raises(TimeoutError, match="nothing is left"):
        together.world.run_until(lambda: False, limit_ns=NS)
