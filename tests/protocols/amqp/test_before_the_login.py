"""What those may send whom nobody knows yet."""

from typing import Any

import pytest
from pamqp.commands import Basic, Connection, Queue

from tests.protocols.amqp.guarded import GuardedRig
from tests.protocols.amqp.rig import Rig
from tests.protocols.amqp.wire import PROTOCOL_HEADER


@pytest.mark.parametrize("logs_in", [True, False], ids=["authentication", "none"])
async def test_large_frames_before_the_login(logs_in: bool) -> None:
    async with GuardedRig() if logs_in else Rig() as rig:
        wire = await rig.wire().connect()
        wire.writer.write(PROTOCOL_HEADER)
        await wire.expect(0, Connection.Start)
        wire.writer.write(b"\x01\0\0" + (65_537).to_bytes(4))
        _, close = await wire.receive()
        assert (close.reply_code, close.reply_text) == (
            501,
            "FRAME_ERROR - a frame of 65537 bytes, where 65536 are allowed",
        )


async def test_a_login_that_is_long_but_not_too_long() -> None:
    async with Rig() as rig:
        wire = await rig.wire().connect()
        wire.writer.write(PROTOCOL_HEADER)
        await wire.expect(0, Connection.Start)
        padding: Any = {f"padding {number}": "x" * 1000 for number in range(60)}
        wire.send(0, Connection.StartOk(padding, "PLAIN", "\0guest\0guest"))
        await wire.expect(0, Connection.Tune)


async def test_much_before_the_login() -> None:
    """Bodies of messages are put together before anybody looks at them: not for those whom nobody knows."""
    async with GuardedRig() as rig:
        wire = await rig.wire().connect()
        wire.writer.write(PROTOCOL_HEADER)
        await wire.expect(0, Connection.Start)
        wire.publish(1, "", "q", b"x" * 120_000, part=10_000)
        _, close = await wire.receive()
        assert close.reply_code == 504
        wire = await rig.wire().connect()
        wire.writer.write(PROTOCOL_HEADER)
        await wire.expect(0, Connection.Start)
        for channel in range(1, 20):
            wire.send(channel, Basic.Publish(0, "", "q"))
            wire.raw(2, channel, b"\0\x3c\0\0" + (100_000_000).to_bytes(8) + b"\0\0")
            wire.raw(3, channel, b"x" * 10_000)
        _, close = await wire.receive()
        assert (close.reply_code, close.reply_text) == (
            501,
            "FRAME_ERROR - more than 131072 bytes before the login",
        )


async def test_frames_after_the_login_may_be_as_large_as_agreed() -> None:
    async with GuardedRig() as rig, await rig.log_in() as wire:
        await wire.call(1, Queue.Declare(queue="q"))
        for _ in range(3):
            wire.publish(1, "", "q", b"x" * 131_000, part=131_000)
        assert len((await wire.call(1, Basic.Get(queue="q"))).body) == 131_000
