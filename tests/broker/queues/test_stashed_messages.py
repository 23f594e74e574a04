"""Messages that were put aside are as good there as they were."""

import asyncio
import json
from pathlib import Path

import pytest

from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageFull
from posthouse.records.header_section import decode_section, encode_section
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome
from tests.broker.queues.rig import PLAIN, SESSION, Taker, running, values_of
from tests.broker.queues.stragglers import relieve, stashed_in, with_stragglers
from tests.broker.queues.test_queue_retention import files_of, numbers, publish, take

pytestmark = pytest.mark.usefixtures("small")


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
        queue = rig.found("q")
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
        assert rig.found("q").message_count == 2


async def test_what_was_settled_before_a_restart_leaves_the_stash(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock=clock) as rig:
        queue, held = await with_stragglers(rig, clock, 3, 7)
        queue.ack(held)
    async with running(tmp_path, clock=clock) as rig:
        queue = rig.found("q")
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
        queue = rig.found("q")
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
        queue = rig.found("q")
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
        assert rig.found("q").message_count == 1


async def test_deleting_the_queue_takes_them(tmp_path: Path, clock: ManualClock) -> None:
    async with running(tmp_path, clock=clock) as rig:
        queue, _ = await with_stragglers(rig, clock, 3, 7, 12)
        await rig.namespace.delete_queue("q", SESSION)
        while await files_of(rig, tmp_path, queue.log):  # in the background
            await asyncio.sleep(0.01)
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
            queue.dispatcher.expiry.plan()
            assert await dead_letters(rig.found("letters"), 1) == [(b"goes", "expired")]
            assert queue.leased_count == 1
            queue.release([taken[1]])
            assert await values_of(queue) == [b"stays"]
            assert await dead_letters(rig.found("letters"), 1) == [(b"held", "expired")]
            return
    clock.advance(2000)
    async with running(tmp_path, clock=clock) as rig:
        letters = await dead_letters(rig.found("letters"), 2)
        assert sorted(letters) == [(b"goes", "expired"), (b"held", "expired")]
        assert await values_of(rig.found("q")) == [b"stays"]


async def test_they_may_be_settled_with_a_transaction(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        queue, held = await with_stragglers(rig, clock, 3, 7)
        await rig.queue("other")
        wave = TransactionWave(rig.broker.publishing)
        queue.ack(held[:1], wave)
        rig.namespace.publish(rig.namespace.router.default, b"other", b"with it", PLAIN, wave)
        await wave.commit()
        assert stashed_in(queue) == [7]
        commit = rig.storage.commit

        def failing(operations: list[Operation]) -> asyncio.Future[list[Outcome]]:
            failed: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
            failed.set_exception(StorageFull("no space"))
            return failed

        wave = TransactionWave(rig.broker.publishing)
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
        assert await values_of(rig.found("q")) == [b"3"]
