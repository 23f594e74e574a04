"""Signs of life, in both directions, with time in the hands of the test."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from pamqp.commands import Basic, Queue

from posthouse.protocols.amqp.connection import AmqpConnection
from posthouse.protocols.amqp.heartbeats import Heartbeats
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.protocols.flow_control import Outbox
from tests.protocols.amqp.rig import Rig
from tests.protocols.amqp.wire import HEARTBEAT, Wire


class Timer:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Time:
    """The part of an event loop that is used here."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self.now + seconds, call)
        self.timers.append(timer)
        return timer

    def pass_by(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.at <= end]:
            timer = min(due, key=lambda each: each.at)
            self.timers.remove(timer)
            self.now = timer.at
            if timer.call is not None:
                timer.call()
        self.now = end


class Sent:
    """In place of an outbox."""

    def __init__(self) -> None:
        self.count = 0
        self.was_used = False

    def send(self, data: bytes) -> None:
        assert data == b"\x08\0\0\0\0\0\0\xce"
        self.count += 1

    def flush(self) -> None:
        self.was_used = True


class Scene:
    def __init__(self, seconds: float = 10) -> None:
        self.time = Time()
        self.sent = Sent()
        self.losses: list[float] = []
        loop = cast("asyncio.AbstractEventLoop", cast("Any", self.time))
        self.heartbeats = Heartbeats(loop, cast("Outbox", self.sent), self.lost)
        self.heartbeats.start(seconds)

    def lost(self) -> None:
        self.losses.append(self.time.now - 100)


def test_an_idle_client_gets_a_heartbeat_every_half_interval() -> None:
    scene = Scene()
    for _ in range(12):
        scene.heartbeats.heard = True
        scene.time.pass_by(5)
    assert scene.sent.count == 12
    assert scene.losses == []


def test_what_is_sent_anyway_spares_a_heartbeat() -> None:
    scene = Scene()
    for _ in range(6):
        scene.heartbeats.heard = True
        scene.sent.was_used = True
        scene.time.pass_by(5)
    assert scene.sent.count == 0


def test_a_client_that_is_silent_for_two_intervals_is_lost() -> None:
    scene = Scene()
    scene.heartbeats.heard = True
    scene.time.pass_by(24)
    assert scene.losses == []
    scene.time.pass_by(100)
    assert scene.losses == [25]  # heard of at 5 at the latest, then silent for 20


def test_a_client_that_is_not_read_from_is_excused() -> None:
    scene = Scene()
    scene.heartbeats.is_excused = True
    scene.time.pass_by(1000)
    assert scene.losses == []
    scene.heartbeats.is_excused = False
    scene.time.pass_by(19)
    assert scene.losses == []
    scene.time.pass_by(5)
    assert len(scene.losses) == 1


@pytest.mark.parametrize("how", ["none asked for", "stopped"])
def test_no_heartbeats(how: str) -> None:
    scene = Scene(0 if how == "none asked for" else 10)
    if how == "stopped":
        scene.heartbeats.stop()
    scene.time.pass_by(1000)
    assert (scene.sent.count, scene.losses) == (0, [])


async def test_a_silent_client_is_let_go() -> None:
    async with Rig() as rig:
        wire = await rig.wire().open(heartbeat=1)
        await wire.channel(1)
        rig.connections[0]._heartbeats._seconds = 0.02
        rig.connections[0]._heartbeats._look()
        await wire.ended()


class TestAClientThatDoesNotRead:
    """It sends heartbeats, and takes nothing of what waits for it."""

    @staticmethod
    async def stalled(rig: Rig) -> tuple[Wire, AmqpConnection]:
        wire = await rig.open(heartbeat=60)
        await wire.call(1, Queue.Declare(queue="q"))
        for _ in range(40):
            wire.publish(1, "", "q", b"x" * 1_000_000)
        cast("asyncio.Transport", wire.writer.transport).pause_reading()
        wire.send(1, Basic.Consume(queue="q", no_ack=True))
        [connection] = rig.connections
        while not connection._outbox.is_congested:
            await asyncio.sleep(0.001)
        return wire, connection

    @staticmethod
    async def untaken(connection: AmqpConnection) -> None:
        """Until the kernel's buffers are full as well."""
        while not connection._outbox.untaken_seconds():
            await asyncio.sleep(0.05)

    async def test_is_closed(self, caplog: pytest.LogCaptureFixture) -> None:
        async with Rig(limits=AmqpLimits(stalled_seconds=5)) as rig:
            wire, connection = await self.stalled(rig)
            await self.untaken(connection)
            for _ in range(5):
                wire.writer.write(HEARTBEAT)
                await wire.writer.drain()
                assert not connection.tick(), "no offence"
            while rig.connections:
                await asyncio.sleep(0.001)
        assert "it read nothing for 5 s" in caplog.text

    async def test_is_kept_while_it_takes_something(self) -> None:
        async with Rig(limits=AmqpLimits(stalled_seconds=5)) as rig:
            wire, connection = await self.stalled(rig)
            transport = cast("asyncio.Transport", wire.writer.transport)
            for _ in range(3):
                await self.untaken(connection)
                for _ in range(3):
                    assert not connection.tick()
                before = connection._outbox.unsent
                transport.resume_reading()
                while connection._outbox.unsent == before:
                    await wire.reader.read(100_000)
                transport.pause_reading()
                connection.tick()
            assert rig.connections == [connection]
            wire.writer.close()
