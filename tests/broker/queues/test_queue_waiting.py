"""Messages that wait behind others: for their key, or until they expire."""

import asyncio
from pathlib import Path

import pytest

from posthouse.broker.queues import key_order
from posthouse.broker.queues import lane as lane_module
from posthouse.broker.queues import loader as loader_module
from posthouse.model.clock import ManualClock
from tests.broker.queues.lazy_rig import dead_letter_queue, get, lazy, until
from tests.broker.queues.lazy_storage import LazyStorage
from tests.broker.queues.rig import Taker, running, settle_turns, values_of


async def test_others_are_handed_out_while_a_key_waits() -> None:
    async with running() as rig:
        await rig.exchange("x")
        queue = await rig.queue(ordered_by_key=True)
        await rig.bind("x", "q")
        taker = Taker(credit=1)
        queue.subscribe(taker)
        for key, value in ((b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (b"b", b"4")):
            await rig.publish(value, key=key, exchange="x")
        await taker.has(1)
        taker.raise_credit(queue, 1)
        await taker.has(2)
        assert taker.values == [b"1", b"4"]
        assert queue.message_count == 2, "those that wait are ready, not leased"
        assert queue.leased_count == 2
        assert queue.purge() == 2
        queue.ack(taker.taken)
        taker.raise_credit(queue, 5)
        await settle_turns()
        assert len(taker.taken) == 2
        assert queue.message_count == 0 and queue.leased_bytes == 0


async def test_one_is_got_though_another_key_waits() -> None:
    async with running() as rig:
        await rig.exchange("x")
        queue = await rig.queue(ordered_by_key=True)
        await rig.bind("x", "q")
        for key, value in ((b"a", b"1"), (b"a", b"2"), (b"b", b"3")):
            await rig.publish(value, key=key, exchange="x")
        assert [(await get(queue)).value, (await get(queue)).value] == [b"1", b"3"]
        assert await queue.get() is None


async def test_the_oldest_go_even_if_they_wait_for_their_key() -> None:
    async with running() as rig:
        queue = await rig.queue(ordered_by_key=True, max_length=2)
        await rig.publish(b"1", b"2")
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(1)
        await rig.publish(b"3")
        await settle_turns()
        await rig.publish(b"4")
        await until(lambda: queue.dispatcher.overflow.task is None)
        assert queue.message_count == 2
        for number, value in enumerate([b"1", b"3", b"4"]):
            await taker.has(number + 1)
            assert taker.taken[number].value == value
            queue.ack([taker.taken[number]])


async def test_what_expires_does_not_keep_others_back() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        await rig.publish(b"goes", expires_in_ms=1000)
        await rig.publish(b"stays")
        taker = Taker(credit=0)
        queue.subscribe(taker)
        await queue.dispatcher.loader.filled()
        clock.advance(2)
        taker.raise_credit(queue, 1)
        await taker.has(1)
        assert taker.values == [b"stays"]


async def test_one_is_got_though_others_expired() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        await rig.publish(b"goes", expires_in_ms=1000)
        await rig.publish(b"stays")
        clock.advance(2)
        assert (await get(queue)).value == b"stays"


async def test_more_may_have_expired_than_was_noted_to_be_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (lane_module, loader_module):
        monkeypatch.setattr(module, "RESERVATION", 10)
    clock = ManualClock()
    async with running(clock=clock) as rig:
        for name in ("q", "other"):
            queue = await rig.queue(name)
            await rig.publish(*[b"goes"] * 11, expires_in_ms=1000, key=name.encode())
            await rig.publish(b"stays", key=name.encode())
            queue.ack([await get(queue)])
            clock.advance(2)
            if name == "q":
                assert (await get(queue)).value == b"stays"
            else:
                taker = Taker(credit=1)
                queue.subscribe(taker)
                await taker.has(1)
                assert taker.values == [b"stays"]


async def test_one_that_expires_takes_nothing_of_other_priorities_along() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue(max_priority=1)
        await rig.publish(b"goes", expires_in_ms=1000, priority=1)
        await rig.publish(b"stays")
        clock.advance(2)
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(1)
        assert taker.values == [b"stays"]


async def test_what_was_leased_when_its_time_came_expires_when_it_comes_back() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead", message_ttl_ms=20)
        await rig.publish(b"a")
        message = await get(queue)
        clock.advance(1)
        await asyncio.sleep(0.05)
        assert (queue.leased_count, dead.message_count) == (1, 0)
        queue.release([message])
        await until(lambda: dead.message_count == 1)
        assert (queue.message_count, queue.leased_count) == (0, 0)


async def test_many_times_of_expiry_do_not_mean_reading_everything_as_often() -> None:
    clock = ManualClock()
    async with lazy(clock) as (rig, _):
        queue = await rig.queue()
        for number in range(300):
            await rig.publish(b"%d" % number, expires_in_ms=10_000 + number)
        clock.advance(10.1)
        await queue.dispatcher.expiry.expire()
        assert queue.message_count == 199
        spans = queue.lanes[0].expiries._spans
        assert [end - first for _, first, end in sorted(spans)] == [64, 64, 64, 7]
        clock.advance(0.198)
        await queue.dispatcher.expiry.expire()
        assert await values_of(queue) == [b"299"]


async def test_expiries_of_a_long_backlog_take_little_memory(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.queue()
        for _ in range(300):
            await rig.publish(b"x", expires_in_ms=3_600_000)
    async with running(tmp_path) as rig:
        queue = rig.found("q")
        await until(lambda: queue.lanes[0].expiries.earliest is not None)
        await settle_turns()
        assert len(queue.lanes[0].expiries._spans) <= 2


@pytest.mark.parametrize("on_disk", [True, False])
async def test_what_is_left_of_a_batch_expires_after_a_restart(tmp_path: Path, on_disk: bool) -> None:
    clock = ManualClock()
    memory = LazyStorage(clock)
    async with running(tmp_path if on_disk else None, clock, None if on_disk else memory) as rig:
        queue = await rig.queue()
        await rig.publish(b"a", b"b", expires_in_ms=1000)
        queue.ack([await get(queue)])
        await rig.retention.reclaim()
        assert rig.storage.bounds(queue.lanes[0].log).start == 1
    async with running(
        tmp_path if on_disk else None, clock, None if on_disk else memory.left_behind()
    ) as rig:
        queue = rig.found("q")
        await until(lambda: queue.lanes[0].expiries.earliest is not None, 2)
        clock.advance(2)
        queue.dispatcher.expiry.plan()
        await until(lambda: queue.message_count == 0)


@pytest.mark.parametrize("is_looked_at", [False, True])
async def test_what_waits_for_others_of_its_key_does_not_outlive_its_time(
    monkeypatch: pytest.MonkeyPatch, is_looked_at: bool
) -> None:
    monkeypatch.setattr(key_order, "CROWD", 1)  # so the third is not even loaded
    clock = ManualClock()
    async with lazy(clock) as (rig, _):
        queue = await rig.queue(ordered_by_key=True, message_ttl_ms=1000)
        taker = Taker()
        queue.subscribe(taker)
        await rig.publish(b"first")
        await taker.has(1)
        await rig.publish(b"second")
        await until(lambda: queue.dispatcher.keys is not None and queue.dispatcher.keys.is_crowded)
        await rig.publish(b"third")
        clock.advance(2)
        if is_looked_at:
            await queue.dispatcher.expiry.expire()
            assert queue.message_count == 0
        queue.ack(taker.taken)
        await until(lambda: queue.message_count == 0)
        assert taker.values == [b"first"]
