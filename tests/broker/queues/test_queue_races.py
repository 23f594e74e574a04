"""What may go wrong between two steps of a queue: a full disk, a deleted queue, a message that must wait."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from struct import Struct
from typing import Any

import pytest
from crc32c import crc32c

from posthouse.broker.appending import Produced
from posthouse.broker.queues import lane as lane_module
from posthouse.broker.queues import loading as loading_module
from posthouse.broker.queues import queue as queue_module
from posthouse.broker.queues.definition import Overflow
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock, SystemClock
from posthouse.model.errors import PosthouseError, QueueBlocked, RecordTooLarge, StorageFull
from posthouse.records.batch import ATTRIBUTES_AT, CRC_AT
from posthouse.records.compression import Codec
from posthouse.records.header_section import encode_section
from posthouse.storage.interface import Append
from tests.broker.queues.lazy_storage import LazyStorage
from tests.broker.queues.rig import PLAIN, SESSION, Rig, Taker, running, settle_turns, values_of
from tests.broker.queues.test_queue_interop import batch

HEADER_COUNT = Struct(">i")


@asynccontextmanager
async def lazy(clock: ManualClock | None = None, **options: Any) -> AsyncIterator[tuple[Rig, LazyStorage]]:
    storage = LazyStorage(clock or SystemClock(), **options)
    async with running(storage=storage, clock=clock) as rig:
        yield rig, storage
        storage.is_full = storage.is_fenced = False


async def until(true: Any, seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.005)


async def get(queue: Queue) -> Message:
    async with asyncio.timeout(5):
        message = await queue.get()
    assert message is not None
    return message


async def dead_letter_queue(rig: Rig, **options: Any) -> Queue:
    await rig.exchange("dead")
    dead = await rig.queue("dead-letters", **options)
    await rig.bind("dead", "dead-letters")
    return dead


# Settled in a transaction


async def test_what_a_transaction_settles_frees_its_key_and_its_bytes() -> None:
    async with running() as rig:
        queue = await rig.queue(ordered_by_key=True, max_bytes=10, overflow=Overflow.REJECT_PUBLISH)
        await rig.publish(b"aaaaa", b"bbbbb")
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(1)
        wave = rig.broker.publishing.transaction()
        queue.ack(taker.taken, wave)
        await wave.commit()
        await taker.has(2)
        assert taker.values == [b"aaaaa", b"bbbbb"]
        assert queue._leased_bytes == 5
        await rig.publish(b"ccccc")
        wave = rig.broker.publishing.transaction()
        queue.ack(taker.taken[1:], wave)
        await wave.commit()
        await taker.has(3)
        queue.ack(taker.taken)
        assert (queue._leased_bytes, queue.ready_bytes) == (0, 0)


async def test_a_transaction_for_a_queue_that_was_deleted() -> None:
    async with running() as rig:
        await rig.exchange("x")
        stays, goes = await rig.queue("stays"), await rig.queue("goes")
        for name in ("stays", "goes"):
            await rig.bind("x", name)
        wave = rig.broker.publishing.transaction()
        rig.namespace.publish(rig.namespace.router.exchange("x"), b"", b"a", PLAIN, wave)
        await rig.namespace.delete_queue("goes", SESSION)
        await wave.commit()
        assert stays.message_count == 1
        assert goes.is_deleted


async def test_a_stream_transaction_for_a_queue_that_was_deleted() -> None:
    async with running() as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        referrals = rig.broker.namespaces.refer(
            [(rig.broker.topic("orders"), _append(rig, "orders", (b"k", b"v", [])))]
        )
        assert referrals is not None
        await rig.namespace.delete_queue("orders", SESSION)
        assert referrals.operations() == []
        referrals.durable()
        assert queue.is_deleted


def _append(rig: Rig, topic: str, *records: Any) -> Append:
    produced = Produced(rig.broker.topic(topic), 0, batch(*records))
    return rig.broker._checked(produced)[0]


# Messages that wait behind others


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
        assert queue.message_count == 0 and queue._leased_bytes == 0


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
        await until(lambda: queue._excess.going is None)
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
        await queue._loading.filled()
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
    for module in (lane_module, loading_module):
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
        await queue._expiring.expire()
        assert queue.message_count == 199
        spans = queue.lanes[0].expiries._spans
        assert [end - first for _, first, end in sorted(spans)] == [64, 64, 64, 7]
        clock.advance(0.198)
        await queue._expiring.expire()
        assert await values_of(queue) == [b"299"]


# Length and bytes


async def test_the_oldest_of_the_lowest_priority_go() -> None:
    async with running() as rig:
        queue = await rig.queue(max_priority=2, max_length=2)
        await rig.publish(b"urgent", priority=2)
        await rig.publish(b"later")
        await rig.publish(b"now", priority=1)
        await until(lambda: queue._excess.going is None)
        assert [(await get(queue)).value, (await get(queue)).value] == [b"urgent", b"now"]


async def test_what_comes_back_may_be_too_much() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=1)
        await rig.publish(b"a")
        message = await get(queue)
        await rig.publish(b"b")
        queue.release([message])
        await until(lambda: queue._excess.going is None and not queue._excess.count())
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
        queue = await rig.queue(max_length=100, max_bytes=10, overflow=Overflow.REJECT_PUBLISH)
        await rig.publish(b"a" * 10)
        assert not queue.room.is_there_for(1)
        message = await get(queue)
        assert queue.room.is_there_for(1), "what is leased does not count, in bytes as in messages"
        queue.release([message])
        assert not queue.room.is_there_for(1)


async def test_bytes_of_whole_batches_do_not_add_up() -> None:
    async with running() as rig:
        queue = await rig.queue("orders", max_bytes=10_000, overflow=Overflow.REJECT_PUBLISH)
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        topic = rig.broker.topic("orders")
        await rig.broker.append([Produced(topic, 0, batch((b"k", b"v", [])))]).wait()
        queue.ack([await get(queue)])
        assert queue.ready_bytes == 0


async def test_handing_out_makes_room() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=1, overflow=Overflow.BLOCK)
        await rig.publish(b"a")
        with pytest.raises(QueueBlocked):
            await rig.publish(b"b")
        room = asyncio.Event()
        queue.room.wait(room.set)
        taker = Taker()
        queue.subscribe(taker)
        async with asyncio.timeout(5):
            await room.wait()
        assert taker.values == [b"a"]


async def test_a_transaction_that_is_given_up_makes_room() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=1, overflow=Overflow.BLOCK)
        wave = rig.broker.publishing.transaction()
        rig.namespace.publish(rig.namespace.router.default, b"q", b"a", PLAIN, wave)
        with pytest.raises(QueueBlocked):
            rig.namespace.publish(rig.namespace.router.default, b"q", b"b", PLAIN)
        room = asyncio.Event()
        queue.room.wait(room.set)
        wave.abandon()
        async with asyncio.timeout(5):
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
    monkeypatch.setattr(queue_module, "LEASED_BYTES", -1)

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
    monkeypatch.setattr(queue_module, "LEASED_BYTES", 1000)
    monkeypatch.setattr(loading_module, "WINDOW", 10)
    monkeypatch.setattr(loading_module, "LOW_WINDOW", 5)
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
    monkeypatch.setattr(queue_module, "RETRY_SECONDS", 0.001)
    async with lazy() as (rig, storage):
        await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead", message_ttl_ms=10)
        await rig.publish(b"a", b"b")
        storage.is_full = True
        commits = storage.commits
        await until(lambda: storage.commits > commits + 10)
        assert len(queue.lanes[0].returned) <= 2


# Storage that fails for a while


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again soon."""
    monkeypatch.setattr(queue_module, "RETRY_SECONDS", 0.05)


@pytest.mark.usefixtures("soon")
async def test_what_could_not_be_reserved_is_handed_out_later() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"a")
        storage.is_full = True
        taker = Taker()
        queue.subscribe(taker)
        await asyncio.sleep(0.1)
        assert taker.taken == []
        storage.is_full = False
        await taker.has(1)


async def test_nothing_spins_while_storage_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue(max_priority=1)
        await rig.publish(b"urgent", priority=1)
        await rig.publish(b"other")
        started: list[object] = []
        start = rig.broker.namespaces.start

        def counted(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            started.append(work)
            return start(work)

        monkeypatch.setattr(rig.broker.namespaces, "start", counted)
        storage.gate = asyncio.Event()
        taker = Taker()
        queue.subscribe(taker)
        await settle_turns(500)
        assert len(started) < 10
        storage.gate.set()
        await taker.has(2)


@pytest.mark.usefixtures("soon")
async def test_getting_says_that_storage_is_full() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"a")
        storage.is_full = True
        with pytest.raises(StorageFull):
            await get(queue)
        storage.is_full = False
        assert (await get(queue)).value == b"a"


@pytest.mark.usefixtures("soon")
async def test_a_queue_that_is_deleted_while_one_is_got() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"a")
        storage.read_gate = asyncio.Event()
        getting = asyncio.create_task(queue.get())
        await settle_turns()
        await rig.namespace.delete_queue("q", SESSION)
        storage.read_gate.set()
        async with asyncio.timeout(5):
            assert await getting is None
            assert await queue.get() is None


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("cause", ["rejected", "expired", "too long", "delivered too often"])
async def test_dead_letters_wait_for_storage(cause: str) -> None:
    clock = ManualClock()
    async with lazy(clock) as (rig, storage):
        options: dict[str, Any] = {
            "rejected": {},
            "expired": {"message_ttl_ms": 20},
            "too long": {"max_length": 1},
            "delivered too often": {"delivery_limit": 0},
        }[cause]
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead", **options)
        await rig.publish(b"a")
        if cause in ("rejected", "delivered too often"):
            message = await get(queue)
            storage.is_full = True
            if cause == "rejected":
                queue.reject([message])
            else:
                queue.release([message])
        elif cause == "expired":
            storage.is_full = True
            clock.advance(1)
            queue._expiring.plan()
        else:
            await get(queue)
            storage.turns = 20
            publishing = asyncio.create_task(rig.publish(b"b", b"c"))
            while not publishing.done():
                await asyncio.sleep(0)
            storage.is_full = True
        await asyncio.sleep(0.2)
        assert storage.commits < 60, "it is not tried again and again"
        assert dead.message_count == 0
        storage.is_full = False
        if cause == "rejected":  # its consumer, or another, gets it again and rejects it again
            await until(lambda: queue.message_count == 1)
            queue.reject([await get(queue)])
        else:
            clock.advance(2)
        await until(lambda: dead.message_count == 1)
        await settle_turns()
        assert dead.message_count == 1
        left = {"too long": 1}.get(cause, 0)
        await until(lambda: queue.message_count == left)


@pytest.mark.usefixtures("soon")
async def test_nothing_spins_when_storage_is_fenced() -> None:
    async with lazy() as (rig, storage):
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead", max_length=1)
        await rig.publish(b"a")
        queue.lanes[0].arrived([])
        storage.turns = 5
        publishing = asyncio.create_task(rig.publish(b"b", b"c"))
        while not publishing.done():
            await asyncio.sleep(0)
        storage.is_fenced = True
        reads = storage.reads
        await asyncio.sleep(0.2)
        assert storage.reads - reads < 50
        storage.is_fenced = False
        await until(lambda: dead.message_count == 2)


async def test_a_failed_transaction_gives_back_what_it_settled() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"a", b"b", b"c")
        first, second, third = await get(queue), await get(queue), await get(queue)
        await until(lambda: not rig.broker.namespaces.settling._changed)
        storage.is_full = True
        wave = rig.broker.publishing.transaction()
        rig.namespace.publish(rig.namespace.router.default, b"q", b"new", PLAIN, wave)
        queue.ack([first, third], wave)
        with pytest.raises(StorageFull):
            await wave.commit()
        storage.is_full = False
        assert (queue.message_count, queue.leased_count) == (0, 3)
        queue.ack([second])
        queue.release([first, third])
        assert (await get(queue)) is first
        assert (await get(queue)) is third


async def test_what_a_failed_transaction_settled_is_not_settled_in_storage_either() -> None:
    """A commit that comes in between may have stored it."""
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"a", b"b")
        first, second = await get(queue), await get(queue)
        wave = rig.broker.publishing.transaction()
        queue.ack([first], wave)
        storage.is_full = True
        committing = wave.commit()
        committing.add_done_callback(lambda done: done.exception())
        settling = rig.broker.namespaces.settling
        queue.ack([second])

        def store_at_once() -> None:
            storage.is_full, storage.after_flush = False, None
            assert settling._timer is not None
            settling._timer.cancel()
            settling._store()

        storage.after_flush = store_at_once
        await asyncio.sleep(0.1)
        assert isinstance(committing.exception(), StorageFull)
        async with running(storage=storage.left_behind()) as after:
            assert await values_of(after.namespace.queue("q", SESSION)) == [b"a"]


# Dead letters that have no place


async def test_a_dead_letter_for_a_full_queue_is_dropped() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig, max_length=1, overflow=Overflow.REJECT_PUBLISH)
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a", b"b", b"c")
        queue.reject([await get(queue), await get(queue)])
        await until(lambda: queue.leased_count == 0)
        assert (queue.message_count, dead.message_count) == (1, 1)
        assert dead.room._expected == 0


async def test_a_dead_letter_does_not_wait_for_room() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig, max_length=1, overflow=Overflow.BLOCK)
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a", b"b")
        queue.reject([await get(queue), await get(queue)])
        await until(lambda: dead.message_count == 2)
        assert queue.leased_count == 0


async def test_a_dead_letter_that_is_too_large_is_dropped() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        await rig.broker.create_topics([NewTopic(name="dead", overrides={"max.message.bytes": "1000"})])
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a" * 2000, b"b")
        queue.reject([await get(queue), await get(queue)])
        await until(lambda: dead.message_count == 1)
        assert (queue.message_count, queue.leased_count) == (0, 0)


@pytest.mark.parametrize(
    "told",
    [
        b'[{"queue":"q","reason":"rejected","count":"many"}]',
        b'[{"queue":"q","reason":"rejected","count":null}]',
        b"[" * 100_000,
        b"\xff",
        b"{}",
        None,
    ],
    ids=["text", "null", "deep", "not UTF-8", "no list", "nothing"],
)
async def test_whatever_a_client_writes_of_deaths(told: bytes | None) -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a", headers=encode_section([(b"posthouse.deaths", told)]))
        queue.reject([await get(queue)])
        await until(lambda: dead.message_count == 1)
        assert queue.leased_count == 0


async def test_headers_that_cannot_be_read_do_not_keep_a_message_alive() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a", headers=b"\x02\x7ecut off")
        queue.reject([await get(queue)])
        await until(lambda: dead.message_count == 1)
        assert queue.leased_count == 0


async def test_one_message_that_is_too_large_does_not_take_others_along() -> None:
    async with running() as rig:
        await rig.exchange("x")
        queue = await rig.queue()
        await rig.bind("x", "q")
        await rig.broker.create_topics([NewTopic(name="x", overrides={"max.message.bytes": "1000"})])
        exchange = rig.namespace.router.exchange("x")
        ends: list[PosthouseError | None] = []
        rig.broker.publishing.wave.on_end(ends.append)
        rig.namespace.publish(exchange, b"", b"small", PLAIN)
        with pytest.raises(RecordTooLarge):
            rig.namespace.publish(exchange, b"", b"x" * 5000, PLAIN)
        await until(lambda: ends)
        assert ends == [None]
        assert queue.message_count == 1


# Records of streams


async def test_records_are_ready_even_if_their_producer_went_away() -> None:
    async with running() as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        appending = rig.broker.append([Produced(rig.broker.topic("orders"), 0, batch((b"k", b"v", [])))])
        assert appending.future is not None
        await appending.future  # nobody asks for the results
        await settle_turns()
        assert queue.message_count == 1
        assert (await get(queue)).value == b"v"


async def test_positions_are_counted_in_the_order_of_commits() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        appending = rig.broker.append([Produced(rig.broker.topic("orders"), 0, batch((b"k", b"stays", [])))])
        await rig.publish(b"goes", key=b"orders", expires_in_ms=20)
        await appending.wait()
        clock.advance(1)
        await until(lambda: queue.message_count == 1)
        assert (await get(queue)).value == b"stays"


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_a_batch_that_has_fewer_records_than_it_says(codec: Codec) -> None:
    async with running() as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        topic = rig.broker.topic("orders")
        data = bytearray(batch((b"k", b"v", []), codec=codec))
        HEADER_COUNT.pack_into(data, 57, 2**31 - 1)
        HEADER_COUNT.pack_into(data, 23, 2**31 - 2)
        data[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(data)[ATTRIBUTES_AT:]).to_bytes(4, "big")
        await rig.broker.append([Produced(topic, 0, memoryview(data))]).wait()
        assert queue.message_count == 0, "it is in no queue"
        many = batch(*[(b"", b"", [])] * 1000, codec=codec)
        await rig.broker.append([Produced(topic, 0, many)]).wait()
        assert queue.message_count == 1000


async def test_records_that_nobody_can_read_are_lost_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        topic = rig.broker.topic("orders")
        data = bytearray(batch(*[(b"k", b"value", [])] * 500))
        data[61 + 3000 :] = b"\xff" * len(data[61 + 3000 :])
        data[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(data)[ATTRIBUTES_AT:]).to_bytes(4, "big")
        await rig.broker.append([Produced(topic, 0, memoryview(data))]).wait()
        await rig.publish(b"after", key=b"orders")
        found = await values_of(queue)
        assert 100 < len(found) < 300 and found[-1] == b"after"
        assert queue.message_count == 0
        assert len(caplog.messages) < 5


async def test_a_message_that_cannot_be_read_again_is_lost_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_module, "LEASED_BYTES", 0)
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"one", b"two")
        taker = Taker(credit=2)
        queue.subscribe(taker)
        await taker.has(2)
        [stored] = rig.storage._logs[rig.partition("q")].batches  # type: ignore[attr-defined]
        damaged = bytearray(stored.data)
        damaged[61:] = b"\xff" * len(damaged[61:])
        stored.data = bytes(damaged)
        queue.release(taker.taken)
        taker.raise_credit(queue, 10)
        await rig.publish(b"three")
        await taker.has(3)
        assert taker.values[2] == b"three"


# Told that it is new


async def test_after_a_crash_what_was_never_there_is_new() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"old", b"older")
        await get(queue)
        after = storage.left_behind()
    async with running(storage=after) as rig:
        queue = rig.namespace.queue("q", SESSION)
        await rig.publish(b"new")
        taken = [await get(queue) for _ in range(3)]
        assert [message.redelivered for message in taken] == [True, True, False]


# After a restart


async def test_expiries_of_a_long_backlog_take_little_memory(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.queue()
        for _ in range(300):
            await rig.publish(b"x", expires_in_ms=3_600_000)
    async with running(tmp_path) as rig:
        queue = rig.namespace.queue("q", SESSION)
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
        queue = rig.namespace.queue("q", SESSION)
        await until(lambda: queue.lanes[0].expiries.earliest is not None, 2)
        clock.advance(2)
        queue._expiring.plan()
        await until(lambda: queue.message_count == 0)
