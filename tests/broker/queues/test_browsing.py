"""Looking at messages without taking them."""

from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.files.engine import FileStorage
from tests.broker.queues.lazy_rig import get
from tests.broker.queues.rig import Rig, Taker, running, settle_turns
from tests.broker.queues.test_unreadable import filled, misplace


async def _peeked(rig: Rig, name: str = "q", most: int = 100) -> list[bytes | None]:
    return [message.value for message in await rig.namespace.queues[name].peek(most)]


async def test_what_is_peeked_is_still_there_and_not_delivered() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"a", b"b", b"c")
        assert await _peeked(rig, most=2) == [b"a", b"b"]
        assert await _peeked(rig) == [b"a", b"b", b"c"]
        assert (queue.message_count, queue.leased_count) == (3, 0)
        first = await get(queue)
        assert (first.value, first.redelivered, first.deliveries) == (b"a", False, 0)


async def test_leased_and_settled_messages_are_left_out() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(*(b"%d" % number for number in range(6)))
        taken = [await get(queue) for _ in range(4)]
        queue.ack([taken[1]])
        queue.release([taken[2]])
        await settle_turns()
        assert await _peeked(rig) == [b"2", b"4", b"5"]
        assert [each.redelivered for each in await queue.peek(3)] == [True, False, False]


async def test_the_highest_priority_first() -> None:
    async with running() as rig:
        await rig.queue(max_priority=3)
        await rig.publish(b"low")
        await rig.publish(b"high", priority=2)
        assert await _peeked(rig) == [b"high", b"low"]


async def test_expired_messages_are_left_out(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        await rig.publish(b"short", expires_in_ms=10)
        await rig.publish(b"long")
        assert await _peeked(rig) == [b"short", b"long"]
        clock.advance(1)
        assert await _peeked(rig) == [b"long"]
        assert queue.leased_count == 0


async def test_large_bodies_are_few() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(*(b"x" * 1000 for _ in range(10)))
        assert len(await queue.peek(10, most_bytes=2500)) == 2
        assert len(await queue.peek(10, most_bytes=10)) == 1


async def test_streams_are_read_from_their_first_message() -> None:
    async with running() as rig:
        await rig.stream("q")
        await rig.publish(b"a", b"b")
        assert await _peeked(rig) == [b"a", b"b"]


@pytest.mark.usefixtures("small")
async def test_messages_in_the_stash_come_first() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(*(b"%03d" % number for number in range(200)))
        taker = Taker(credit=200)
        queue.subscribe(taker)
        await taker.has(200)
        queue.unsubscribe(taker)
        queue.ack(taker.taken[1:])
        await rig.publish(b"new")
        await rig.broker.namespaces.retention.reclaim()
        queue.release([taker.taken[0]])
        await settle_turns()
        assert await _peeked(rig) == [b"000", b"new"]


@pytest.mark.usefixtures("small")
async def test_what_cannot_be_read_is_left_out_and_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as rig:
        queue = await filled(rig, 20)
        misplace(rig, rig.partition("q"), 1)
        peeked = await _peeked(rig)
        assert peeked
        assert peeked == [b"%d" % number for number in range(20 - len(peeked), 20)]
        assert queue.message_count == 20
        assert not [each for each in caplog.records if each.levelname in ("ERROR", "WARNING")]


async def test_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    for value, there in ((b"a", [b"a"]), (b"b", [b"a", b"b"])):
        async with running(storage=FileStorage(tmp_path, clock=clock), clock=clock) as rig:
            await rig.queue()
            await rig.publish(value)
            assert await _peeked(rig) == there
