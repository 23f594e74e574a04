"""Queues with limits of length and bytes, and what they keep in memory."""

import asyncio
from collections.abc import Sequence

import pytest

from posthouse.broker.appending import Produced
from posthouse.broker.queues import loader as loader_module
from posthouse.broker.queues import log_queue, overflow, settlement
from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import PosthouseError, QueueBlocked
from tests.broker.queues.lazy_rig import dead_letter_queue, get, lazy, until
from tests.broker.queues.rig import PLAIN, Taker, running, settle_turns
from tests.broker.queues.test_queue_interop import batch


async def test_the_oldest_of_the_lowest_priority_go() -> None:
    async with running() as rig:
        queue = await rig.queue(max_priority=2, max_length=2)
        await rig.publish(b"urgent", priority=2)
        await rig.publish(b"later")
        await rig.publish(b"now", priority=1)
        await until(lambda: queue.dispatcher.overflow.task is None)
        assert [(await get(queue)).value, (await get(queue)).value] == [b"urgent", b"now"]


async def test_what_comes_back_may_be_too_much() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=1)
        await rig.publish(b"a")
        message = await get(queue)
        await rig.publish(b"b")
        queue.release([message])
        await until(lambda: queue.dispatcher.overflow.task is None and not queue.dispatcher.overflow.count())
        assert (await get(queue)).value == b"b"
        assert await queue.get() is None


@pytest.mark.parametrize("how", ["leaves", "is busy"])
async def test_what_a_consumer_was_expected_to_take_may_be_too_much(how: str) -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=1)
        taker = Taker(credit=5)
        queue.subscribe(taker)

        def ended(error: PosthouseError | None) -> None:
            if how == "leaves":
                queue.unsubscribe(taker)
            else:
                taker._credit = 0

        rig.broker.publishing.wave.on_end(ended)
        await rig.publish(b"a", b"b", b"c")
        await settle_turns()
        assert sum(lane.ready for lane in queue.lanes) == 1
        assert (await get(queue)).value == b"c"


async def test_both_limits_count() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=100, max_bytes=10, overflow=OverflowPolicy.REJECT_PUBLISH)
        await rig.publish(b"a" * 10)
        assert not queue.room.is_there_for(1)
        message = await get(queue)
        assert queue.room.is_there_for(1), "what is leased does not count, in bytes as in messages"
        queue.release([message])
        assert not queue.room.is_there_for(1)


async def test_bytes_of_whole_batches_do_not_add_up() -> None:
    async with running() as rig:
        queue = await rig.queue("orders", max_bytes=10_000, overflow=OverflowPolicy.REJECT_PUBLISH)
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        topic = rig.broker.topic("orders")
        await rig.broker.append([Produced(topic, 0, batch((b"k", b"v", [])))]).wait()
        queue.ack([await get(queue)])
        assert queue.ready_bytes == 0


async def test_handing_out_makes_room() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=1, overflow=OverflowPolicy.BLOCK)
        await rig.publish(b"a")
        with pytest.raises(QueueBlocked):
            await rig.publish(b"b")
        room = asyncio.Event()
        queue.room.wait(room.set)
        taker = Taker()
        queue.subscribe(taker)
        async with asyncio.timeout(30):
            await room.wait()
        assert taker.values == [b"a"]


async def test_a_transaction_that_is_given_up_makes_room() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=1, overflow=OverflowPolicy.BLOCK)
        wave = TransactionWave(rig.broker.publishing)
        rig.namespace.publish(rig.namespace.router.default, b"q", b"a", PLAIN, wave)
        with pytest.raises(QueueBlocked):
            rig.namespace.publish(rig.namespace.router.default, b"q", b"b", PLAIN, rig.broker.publishing.wave)
        room = asyncio.Event()
        queue.room.wait(room.set)
        wave.abandon()
        async with asyncio.timeout(30):
            await room.wait()


async def test_large_messages_are_not_all_in_memory() -> None:
    async with running() as rig:
        queue = await rig.queue()
        for _ in range(60):
            await rig.publish(b"x" * 500_000)
        taker = Taker(credit=1)
        queue.subscribe(taker)
        for number in range(20):
            await taker.has(number + 1)
            taker.taken[number].value = None
            taker.raise_credit(queue, 1)
            await settle_turns()
            assert sum(message.size for message in queue.lanes[0].window) <= 6 * 1024 * 1024


async def test_a_body_is_let_go_only_while_it_is_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "LEASED_BYTES", -1)

    class Refusing(Taker):
        def deliver(self, messages: Sequence[Message]) -> None:
            super().deliver(messages)
            if len(self.taken) == 1:
                queue.release(messages)

    async with running() as rig:
        queue = await rig.queue()
        taker = Refusing()
        queue.subscribe(taker)
        await rig.publish(b"body")
        await taker.has(2)
        assert taker.values == [b"body", b"body"]


async def test_what_came_back_is_read_again_in_its_order_and_a_window_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settlement, "LEASED_BYTES", 1000)
    monkeypatch.setattr(loader_module, "WINDOW", 10)
    monkeypatch.setattr(loader_module, "LOW_WINDOW", 5)
    async with running() as rig:
        queue = await rig.queue()
        values = [b"%100d" % number for number in range(100)]
        await rig.publish(*values)
        taker = Taker(credit=80)
        queue.subscribe(taker)
        await taker.has(80)
        queue.unsubscribe(taker)
        queue.release(taker.taken)
        next_taker = Taker(credit=1)
        queue.subscribe(next_taker)
        lane = queue.lanes[0]
        for number in range(100):
            await next_taker.has(number + 1)
            in_memory = sum(message.value is not None for message in [*lane.window, *lane.returned])
            assert in_memory <= 10 + 10 + 10  # a window, what was read again, and what was never let go
            queue.ack(next_taker.taken[-1:])
            next_taker.raise_credit(queue, 1)
        assert next_taker.values == values


async def test_what_fails_to_expire_is_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queue, "RETRY_SECONDS", 0.001)
    async with lazy() as (rig, storage):
        await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead", message_ttl_ms=10)
        await rig.publish(b"a", b"b")
        storage.is_full = True
        commits = storage.commits
        await until(lambda: storage.commits > commits + 10)
        assert len(queue.lanes[0].returned) <= 2


async def test_only_the_queues_that_dead_letters_may_come_to_wait_for_a_queue_that_is_too_long() -> None:
    async with lazy() as (rig, storage):
        await dead_letter_queue(rig)
        await rig.queue("other")
        queue = await rig.queue(max_length=1, dead_letter_exchange="dead")
        effects = rig.namespace.effects
        await rig.publish(b"1", b"2", b"3")
        storage.gate = asyncio.Event()
        rig.namespace.publish(
            rig.namespace.router.exchange(""), b"q", b"4", PLAIN, rig.broker.publishing.wave
        )
        await until(lambda: queue.dispatcher.overflow.task is not None)
        assert not effects, "a channel may be closed, an exchange declared"
        async with asyncio.timeout(30):
            await effects.done()
            await effects.done("other")
        concerned = [asyncio.create_task(effects.done(name)) for name in ("q", "dead-letters")]
        await settle_turns()
        assert not any(task.done() for task in concerned)
        storage.gate.set()
        await asyncio.gather(*concerned)


async def test_no_request_waits_for_the_end_of_what_goes_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lazy() as (rig, _):
        dead = await dead_letter_queue(rig)
        monkeypatch.setattr(overflow, "AT_ONCE", 10)
        queue = await rig.queue(max_length=1, dead_letter_exchange="dead")
        await rig.publish(*[b"%d" % number for number in range(1000)])
        await rig.namespace.effects.done("q")
        assert queue.dispatcher.overflow.count() > 500 and dead.message_count > 0
        await until(lambda: dead.message_count == 999)


async def test_no_request_waits_until_a_whole_backlog_has_expired(clock: ManualClock) -> None:
    async with lazy(clock) as (rig, _):
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(message_ttl_ms=1000, dead_letter_exchange="dead")
        for number in range(200):
            await rig.publish(b"a", expires_in_ms=1000 - number)
        clock.advance(2)
        queue.dispatcher.expiry.plan()
        await rig.namespace.effects.done("q")
        assert 0 < dead.message_count < 100
        await until(lambda: dead.message_count == 200)
