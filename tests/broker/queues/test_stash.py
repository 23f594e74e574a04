"""Old messages do not hold the log back: they are put aside, and are as good there as they were."""

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.queues.message import Message
from posthouse.broker.queues.progress import CHUNK, Progress
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.stash import Stashed
from posthouse.broker.queues.stragglers import StragglerLimits
from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageFull
from posthouse.model.ids import TopicId
from posthouse.records.header_section import decode_section, encode_section
from posthouse.storage.interface import Operation, Outcome, Put
from tests.alarms import alarms
from tests.broker.queues.rig import PLAIN, SESSION, Rig, Taker, running, tiny_segments, values_of
from tests.broker.queues.test_queue_retention import files_of, numbers, publish, take

QUEUE = b"q" * 16
TOPIC = TopicId(b"t" * 16)
FEW = StragglerLimits(most=5, positions=20, seconds=60, rewritten=0)


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        tiny_segments(patch)
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def relieve(rig: Rig, clock: ManualClock) -> None:
    """Let so much time go by that stragglers are put aside, and the log that they held back is let go."""
    rig.retention.limits = FEW
    await rig.retention.reclaim()
    clock.advance(FEW.seconds)
    await rig.retention.reclaim()
    await rig.retention.reclaim()


async def with_stragglers(
    rig: Rig, clock: ManualClock, *held: int, end: int = 40
) -> tuple[Queue, list[Message]]:
    """A queue of `end` messages, all acknowledged but for a few, which are leased and in the stash."""
    queue = await rig.queue()
    await publish(rig, end)
    taken = await take(queue, end)
    queue.ack([message for message in taken if message.position not in held])
    await relieve(rig, clock)
    return queue, [taken[position] for position in held]


def stashed_in(queue: Queue) -> list[int]:
    return sorted(position for lane in queue.lanes for position in lane.progress.stash)


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


async def test_those_that_come_back_keep_their_place_and_their_story(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        queue, held = await with_stragglers(rig, clock, 3, 7, 12)
        await publish(rig, 2, 40)
        for message in held:
            message.value = None  # as if it had been let go: it must be read from the stash
        queue.release([held[2], held[0], held[1]])
        assert queue.message_count == 5
        again = await take(queue, 5)
        assert [message.value for message in again] == [b"3", b"7", b"12", b"40", b"41"]
        assert [message.deliveries for message in again] == [1, 1, 1, 0, 0]
        assert [message.key for message in again] == [b"q"] * 5
        queue.release(again[:1])
        [first] = await take(queue, 1)
        assert first.deliveries == 2
        queue.ack([first])
        queue.ack(again[1:])
        assert (queue.message_count, queue.leased_count) == (0, 0)
        await rig.retention.reclaim()
        bounds = rig.storage.bounds(queue.stash)
        assert bounds.start == bounds.end


async def test_what_is_put_aside_is_all_of_the_message(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        headers = encode_section([(b"name", b"value"), (b"none", None)])
        await rig.publish(b"body", headers=headers)
        [message] = await take(queue, 1)
        timestamp = message.timestamp
        clock.advance(1)
        await publish(rig, 40)
        queue.ack(await take(queue, 40))
        await relieve(rig, clock)
        assert stashed_in(queue) == [0]
        message.key = message.value = None
        message.headers, message.timestamp = b"", 0
        queue.release([message])
        [message] = await take(queue, 1)
        assert (message.key, message.value, message.timestamp) == (b"q", b"body", timestamp)
        assert decode_section(message.headers) == [(b"name", b"value"), (b"none", None)]
        assert message.topic == "q"


async def test_a_restart_finds_them(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock=clock) as rig:
        queue, held = await with_stragglers(rig, clock, 3, 7, 12)
        queue.release(held[:1])
        queue.ack(held[1:2])
        await publish(rig, 2, 40)
    async with running(tmp_path, clock=clock) as rig:
        queue = rig.namespace.queue("q", SESSION)
        assert queue.message_count == 4
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(4)
        assert taker.values == [b"3", b"12", b"40", b"41"]
        assert [message.redelivered for message in taker.taken] == [True, True, False, False]
        assert [message.deliveries for message in taker.taken] == [1, 0, 0, 0]
        assert taker.taken[0].topic == "q"
        queue.ack(taker.taken[:2])
        await rig.retention.reclaim()
        bounds = rig.storage.bounds(queue.stash)
        assert bounds.start == bounds.end
    async with running(tmp_path, clock=clock) as rig:
        assert rig.namespace.queue("q", SESSION).message_count == 2


async def test_what_was_settled_before_a_restart_leaves_the_stash(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock=clock) as rig:
        queue, held = await with_stragglers(rig, clock, 3, 7)
        queue.ack(held)
    async with running(tmp_path, clock=clock) as rig:
        queue = rig.namespace.queue("q", SESSION)
        assert await files_of(rig, tmp_path, queue.log) == 1
        await rig.retention.reclaim()
        assert await files_of(rig, tmp_path, queue.log) == 0


async def test_those_that_nobody_has_loaded_are_found(tmp_path: Path, clock: ManualClock) -> None:
    """After a restart, or without consumers: they lie below what is read next."""
    async with running(tmp_path, clock=clock) as rig:
        queue = await rig.queue()
        await publish(rig, 40)
        queue.ack((await take(queue, 40))[2:35])
    async with running(tmp_path, clock=clock) as rig:
        queue = rig.namespace.queue("q", SESSION)
        await relieve(rig, clock)
        assert stashed_in(queue) == [0, 1]
        assert rig.storage.bounds(queue.lanes[0].log).start == 35
        assert queue.message_count == 7
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(7)
        assert taker.values == [b"0", b"1", *numbers(35, 40)]


async def test_some_are_in_memory_and_some_are_not(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock=clock) as rig:
        queue = await rig.queue()
        await publish(rig, 40)
        queue.ack([each for each in await take(queue, 40) if each.position not in (0, 1, 20, 39)])
    async with running(tmp_path, clock=clock) as rig:
        queue = rig.namespace.queue("q", SESSION)
        [first] = await take(queue, 1)
        assert queue.lanes[0].loaded_to > 20
        await publish(rig, 1, 40)
        await relieve(rig, clock)
        assert stashed_in(queue) == [0, 1, 20]
        queue.release([first])
        assert queue.message_count == 5
        assert await values_of(queue) == [b"0", b"1", b"20", b"39", b"40"]


async def test_purging_takes_them_but_for_those_that_are_held(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock=clock) as rig:
        queue, held = await with_stragglers(rig, clock, 3, 7, 12)
        queue.release(held[:2])
        assert queue.purge() == 2
        assert (queue.message_count, queue.leased_count) == (0, 1)
        assert await queue.get() is None
        queue.release(held[2:])
        assert await values_of(queue) == [b"12"]
    async with running(tmp_path, clock=clock) as rig:
        assert rig.namespace.queue("q", SESSION).message_count == 1


async def test_deleting_the_queue_takes_them(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock=clock) as rig:
        queue, _ = await with_stragglers(rig, clock, 3, 7, 12)
        await rig.namespace.delete_queue("q", SESSION)
        assert await files_of(rig, tmp_path, queue.log) == 0
        await rig.retention.reclaim()
    async with running(tmp_path, clock=clock) as rig:
        assert not rig.namespace.queues
        assert (await rig.queue()).message_count == 0


async def dead_letters(queue: Queue, count: int) -> list[tuple[bytes | None, str]]:
    async with asyncio.timeout(10):
        while queue.message_count < count:
            await asyncio.sleep(0.005)
    found = []
    for message in await take(queue, count):
        [death] = json.loads(dict(decode_section(message.headers))[b"posthouse.deaths"] or b"")
        found.append((message.value, death["reason"]))
    return found


@pytest.mark.parametrize("restart", [False, True])
async def test_they_expire_as_others_do(tmp_path: Path, clock: ManualClock, restart: bool) -> None:
    async with running(tmp_path, clock=clock) as rig:
        await rig.exchange("dead")
        await rig.queue("letters")
        await rig.bind("dead", "letters")
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"goes", expires_in_ms=1_000_000)
        await rig.publish(b"held", expires_in_ms=1_000_000)
        await rig.publish(b"stays")
        await publish(rig, 40)
        taken = await take(queue, 43)
        queue.ack(taken[3:])
        await relieve(rig, clock)
        assert stashed_in(queue) == [0, 1, 2]
        queue.release([taken[0], taken[2]])
        if not restart:
            clock.advance(2000)
            queue._expiring.plan()
            assert await dead_letters(rig.namespace.queues["letters"], 1) == [(b"goes", "expired")]
            assert queue.leased_count == 1
            queue.release([taken[1]])
            assert await values_of(queue) == [b"stays"]
            assert await dead_letters(rig.namespace.queues["letters"], 1) == [(b"held", "expired")]
            return
    clock.advance(2000)
    async with running(tmp_path, clock=clock) as rig:
        letters = await dead_letters(rig.namespace.queues["letters"], 2)
        assert sorted(letters) == [(b"goes", "expired"), (b"held", "expired")]
        assert await values_of(rig.namespace.queue("q", SESSION)) == [b"stays"]


async def test_they_may_be_settled_with_a_transaction(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        queue, held = await with_stragglers(rig, clock, 3, 7)
        await rig.queue("other")
        wave = rig.broker.publishing.transaction()
        queue.ack(held[:1], wave)
        rig.namespace.publish(rig.namespace.router.default, b"other", b"with it", PLAIN, wave)
        await wave.commit()
        assert stashed_in(queue) == [7]
        commit = rig.storage.commit

        def failing(operations: list[Operation]) -> asyncio.Future[list[Outcome]]:
            failed: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
            failed.set_exception(StorageFull("no space"))
            return failed

        wave = rig.broker.publishing.transaction()
        queue.ack(held[1:], wave)
        rig.storage.commit = failing  # type: ignore[method-assign, assignment]
        with pytest.raises(StorageFull):
            await wave.commit()
        rig.storage.commit = commit  # type: ignore[method-assign]
        assert (stashed_in(queue), queue.leased_count) == ([7], 1)
        await rig.retention.reclaim()
        held[1].value = None
        queue.release(held[1:])
        assert await values_of(queue) == [b"7"]


async def test_a_stash_that_is_mostly_empty_is_written_anew(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock=clock) as rig:
        queue, held = await with_stragglers(rig, clock, 3, 7)
        for turn in range(1, 4):
            first = 40 * turn
            await publish(rig, 40, first)
            taken = await take(queue, 40)
            queue.ack(taken[4:])
            await relieve(rig, clock)
            assert stashed_in(queue) == [3, 7, *range(first, first + 4)]
            queue.ack(taken[:4])
        queue.ack(held[1:])
        end = rig.storage.bounds(queue.stash).end
        await rig.retention.reclaim()
        await rig.retention.reclaim()
        bounds = rig.storage.bounds(queue.stash)
        assert (bounds.start, bounds.end) == (end, end + 1)
        assert await files_of(rig, tmp_path, queue.log) == 1
        held[0].value = None
        queue.release(held[:1])
        assert await values_of(queue) == [b"3"]
    async with running(tmp_path, clock=clock) as rig:
        assert await values_of(rig.namespace.queue("q", SESSION)) == [b"3"]


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
            await rig.broker.enforce_retention()
        assert not stashed_in(quiet), "retention would not let go of it yet"
        clock.advance(30 * 86_400)
        await rig.broker.enforce_retention()
        assert rig.storage.bounds(log).start == 0
        assert rig.retention.held_back == {log: 31}
        for _ in range(3):
            clock.advance(60)
            await rig.broker.enforce_retention()
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


# How it is kept

STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["settle", "aside", "back"]), st.integers(0, 60)),
        st.tuples(st.sampled_from(["settle", "aside"]), st.integers(0, 2 * CHUNK)),
        st.tuples(st.just("range"), st.integers(0, 60), st.integers(0, 2 * CHUNK)),
        st.tuples(st.just("unsettle"), st.integers(0, 10_000)),
        st.tuples(st.sampled_from(["store", "lost", "reload"])),
    ),
    max_size=60,
)


def _keep(state: dict[bytes, bytes], puts: list[Put]) -> None:
    for put in puts:
        if put.value is None:
            state.pop(put.key, None)
        else:
            state[put.key] = put.value


def _reloaded(state: dict[bytes, bytes]) -> Progress:
    progress = Progress(QUEUE, 3)
    for key, value in state.items():
        progress.load(key, value)
    progress.loaded(0)
    return progress


@given(STEPS)
def test_progress_with_a_stash(steps: list[tuple[object, ...]]) -> None:
    progress, done, aside, deliveries = Progress(QUEUE, 3), set[int](), set[int](), dict[int, int]()
    recently: set[int] = set()
    state: dict[bytes, bytes] = {}
    for name, *given_numbers in steps:
        match name, given_numbers:
            case "settle", [int(position)]:
                assert progress.settle(position) == (position not in done)
                done.add(position)
                recently.add(position)
            case "aside", [int(position)] if position not in done | aside:
                progress.put_aside(position, Stashed(position + 7, 0, 1, TOPIC))
                aside.add(position)
            case "back", [int(position)] if position not in done:
                deliveries[position] = deliveries.get(position, 0) + 1
                assert progress.came_back(position) == deliveries[position]
            case "range", [int(first), int(count)]:
                progress.settle_range(first, first + count)
                done |= set(range(first, first + count)) - aside
            case "unsettle", [int(number)] if recently:
                position = sorted(recently)[number % len(recently)]
                progress.unsettle(position)
                recently.discard(position)
                done.discard(position)
                if position not in aside:
                    deliveries.pop(position, None)
            case "store", []:
                _keep(state, progress.puts())
            case "lost", []:
                progress.puts()
                progress.not_stored()
            case "reload", []:
                _keep(state, progress.puts())
                progress = _reloaded(state)
                recently.clear()
        live = aside - done
        counted = done | aside
        floor = next(position for position in range(len(counted) + 1) if position not in counted)
        assert progress.floor == floor
        assert progress.settled_above == len(counted) - floor
        assert set(progress.stash) == live
    for position in live if steps else ():
        assert progress.deliveries(position) == deliveries.get(position, 0)
        assert progress.stash[position].offset == position + 7
    _keep(state, progress.puts())
    assert set(_reloaded(state).stash) == set(progress.stash)
    _keep(state, progress.removals())
    assert state == {}


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 3)), st.integers(0, 20))
def test_where_stragglers_end(singles: set[int], chunks: set[int], most: int) -> None:
    progress = Progress(QUEUE, 0)
    settled = singles | {at for chunk in chunks for at in range(chunk * CHUNK, (chunk + 1) * CHUNK)}
    for position in singles:
        progress.settle(position)
    for chunk in chunks:
        progress.settle_range(chunk * CHUNK, (chunk + 1) * CHUNK)
    unsettled = [at for at in range(5 * CHUNK) if at not in settled]
    floor = unsettled[0]
    ends = [
        at + 1
        for at in sorted(settled)
        if at > floor and sum(floor <= each < at for each in unsettled[: most + 2]) <= most
    ]
    end, found = progress.stragglers(most)
    assert end == max(ends, default=floor)
    assert found == sum(each < end for each in unsettled)
    assert progress.unsettled(end, 10_000) == [each for each in unsettled if each < end]
