"""Old messages do not hold the log back: they are put aside."""

import asyncio
import random
from pathlib import Path

import pytest

from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.stragglers import StragglerLimits
from posthouse.model.clock import ManualClock
from tests.alarms import alarms
from tests.broker.queues.rig import Taker, running, values_of
from tests.broker.queues.stragglers import FEW, relieve, stashed_in, with_stragglers
from tests.broker.queues.test_queue_retention import files_of, numbers, publish, take

pytestmark = pytest.mark.usefixtures("small")


async def test_one_old_message_does_not_hold_the_log_back(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock=clock) as rig:
        queue, [held] = await with_stragglers(rig, clock, 0)
        assert rig.storage.bounds(rig.partition("q")).start == 40
        assert rig.storage.bounds(queue.lanes[0].log).start == 40
        assert await files_of(rig, tmp_path, rig.broker.topic("q")) == 0
        assert await files_of(rig, tmp_path, queue.log) == 1, "the stash"
        assert (queue.message_count, queue.leased_count) == (0, 1)
        queue.ack([held])
        assert (queue.message_count, queue.leased_count) == (0, 0)
        await rig.retention.reclaim()
        assert await files_of(rig, tmp_path, queue.log) == 0
        await publish(rig, 2, 40)
        assert await values_of(queue) == numbers(40, 42)


async def test_they_are_given_time(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        rig.retention.limits = FEW
        queue = await rig.queue()
        await publish(rig, 40)
        taken = await take(queue, 40)
        queue.ack(taken[1:])
        for _ in range(3):
            await rig.retention.reclaim()
            clock.advance(FEW.seconds / 4)
        assert not stashed_in(queue)
        queue.ack(taken[:1])
        await rig.retention.reclaim()
        clock.advance(FEW.seconds)
        await rig.retention.reclaim()
        assert not stashed_in(queue)
        assert rig.storage.bounds(queue.stash).end == 0, "nothing was copied"


async def test_a_backlog_stays_where_it_is(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        await publish(rig, 60)
        taken = await take(queue, 60)
        queue.ack(taken[6:50])
        await relieve(rig, clock)
        assert stashed_in(queue) == [], "six are more than a few"
        queue.ack(taken[3:4])
        await relieve(rig, clock)
        assert stashed_in(queue) == [0, 1, 2, 4, 5], (
            "and those behind what is settled do not hold anything back"
        )
        assert rig.storage.bounds(rig.partition("q")).start == 50


async def test_few_positions_may_be_many_bytes(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        rig.retention.limits = StragglerLimits(size=5000, seconds=0)
        queue = await rig.queue()
        await rig.publish(*[b"x" * 1000] * 6)
        taken = await take(queue, 6)
        queue.ack(taken[1:4])
        for _ in range(2):
            await rig.retention.reclaim()
        assert not stashed_in(queue)
        queue.ack(taken[4:])
        for _ in range(3):
            await rig.retention.reclaim()
        assert stashed_in(queue) == [0]
        assert rig.storage.bounds(rig.partition("q")).start == 6


async def test_one_message_of_a_quiet_queue_does_not_hold_a_busy_topic_back(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        rig.retention.limits = StragglerLimits(most=5, size=500, seconds=60)
        await rig.exchange("orders")
        quiet, busy = await rig.queue("quiet"), await rig.queue("busy")
        await rig.bind("orders", "quiet")
        await publish(rig, 1, exchange="orders")
        await rig.bind("orders", "busy")
        await rig.namespace.unbind(next(iter(rig.namespace.router.bindings(destination="quiet"))))
        await publish(rig, 30, 1, exchange="orders")
        busy.ack(await take(busy, 30))
        log = rig.partition("orders")
        for _ in range(3):
            clock.advance(100)
            await rig.broker.retention.enforce()
        assert not stashed_in(quiet), "retention would not let go of it yet"
        clock.advance(30 * 86_400)
        await rig.broker.retention.enforce()
        assert rig.storage.bounds(log).start == 0
        assert rig.retention.held_back == {log: 31}
        for _ in range(3):
            clock.advance(60)
            await rig.broker.retention.enforce()
        assert stashed_in(quiet) == [0]
        assert rig.storage.bounds(log).start == 31
        assert await values_of(quiet) == [b"0"]


async def test_messages_of_one_key_stay_in_order(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        queue = await rig.queue(ordered_by_key=True)
        await rig.exchange("orders")
        await rig.bind("orders", "q")
        for number in range(3):
            await rig.publish(b"a%d" % number, key=b"a", exchange="orders")
        await publish(rig, 40, key=b"", exchange="orders")
        taken = await take(queue, 41)
        assert [message.value for message in taken[:2]] == [b"a0", b"0"]
        queue.ack(taken[1:])
        await relieve(rig, clock)
        assert stashed_in(queue) == [0, 1, 2], "two wait for the first of them"
        for number in range(3):
            queue.ack(taken[:1])
            taken = await take(queue, 1)
            assert [message.value for message in taken] == ([b"a%d" % (number + 1)] if number < 2 else [])
        assert (queue.message_count, queue.leased_count) == (0, 0)


@pytest.mark.parametrize("in_memory", [True, False])
async def test_traffic_does_not_notice(
    tmp_path: Path, in_memory: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Consumers settle out of order, give back, and sit on messages, and disk is given back all the time."""
    total, chance = 1000, random.Random(7)
    async with running(None if in_memory else tmp_path) as rig:
        rig.retention.limits = StragglerLimits(most=25, positions=30, seconds=0, rewritten=0)
        await rig.exchange("all")
        queues = [await rig.queue(name, max_priority=1) for name in ("first", "second")]
        for queue in queues:
            await rig.bind("all", queue.name)
        settled: dict[str, list[bytes]] = {queue.name: [] for queue in queues}

        async def consume(queue: Queue) -> None:
            taker, held, seen = Taker(credit=100), list[Message](), 0
            queue.subscribe(taker)
            while len(settled[queue.name]) < total:
                await asyncio.sleep(0.0005)
                held += taker.taken[seen:]
                seen = len(taker.taken)
                values = dict(zip(taker.taken, taker.values, strict=True))
                is_last = len(settled[queue.name]) + len(held) == total
                keep = 0 if is_last or (len(held) > 90 and chance.random() < 0.1) else 10
                done, held = held[keep:], held[:keep]
                back = [message for message in done if chance.random() < 0.1]
                done = [message for message in done if message not in back]
                settled[queue.name] += [values[message] for message in done]
                queue.ack(done)
                queue.release(back)
                taker.raise_credit(queue, len(done) + len(back))

        async def produce() -> None:
            for number in range(0, total, 5):
                values = [b"%d" % each for each in range(number, number + 5)]
                await rig.publish(*values, exchange="all", priority=number % 2)
                if number % 50 == 0:
                    await asyncio.sleep(0.001)

        async def reclaim() -> None:
            while True:
                await rig.retention.reclaim()
                await asyncio.sleep(0)

        reclaiming = asyncio.create_task(reclaim())
        async with asyncio.timeout(60):
            await asyncio.gather(produce(), *(consume(queue) for queue in queues))
        reclaiming.cancel()
        await asyncio.wait([reclaiming])
        assert reclaiming.cancelled()
        for queue in queues:
            assert sorted(settled[queue.name], key=int) == numbers(0, total)
            assert (queue.message_count, queue.leased_count) == (0, 0)
        await rig.retention.reclaim()
        for queue in queues:
            assert [rig.storage.size(each) for each in queue.log.partition_ids()] == [0, 0, 0]
            assert rig.storage.bounds(queue.stash).end > 0, "some were put aside"
        assert not alarms(caplog)
