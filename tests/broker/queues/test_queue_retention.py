"""Disk is given back when queues are done with it, and never before."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from posthouse.broker.appending import Produced
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageFull
from posthouse.model.ids import GroupId, MemberId
from posthouse.model.topics import Topic
from posthouse.storage.operations import Append, Operation
from posthouse.storage.outcomes import Outcome
from tests.broker.queues.rig import PLAIN, SESSION, Rig, running, tiny_segments, values_of
from tests.broker.transactions.producers import Bench, Client
from tests.storage.batches import make_batch
from tests.storage.compacted import read_records

DAY = 86_400
NO_PRODUCER = MemberIdentity(member=MemberId(""))


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        tiny_segments(patch)
        yield


async def take(queue: Queue, count: int) -> list[Message]:
    taken = [await queue.get() for _ in range(count)]
    return [message for message in taken if message is not None]


async def publish(rig: Rig, count: int, first: int = 0, *, key: bytes = b"q", exchange: str = "") -> None:
    for number in range(first, first + count):
        await rig.publish(b"%d" % number, key=key, exchange=exchange)


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def log_files(data: Path, topic: Topic) -> list[Path]:
    return sorted((data / "topics" / topic.id.hex()).glob("*.log"))


async def files_of(rig: Rig, data: Path, topic: Topic) -> int:
    """How many segments are on the disk, once those that go are gone."""
    await rig.storage._background.do(lambda: None)  # type: ignore[attr-defined]
    return len(log_files(data, topic))


async def test_what_is_acknowledged_leaves_the_disk(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        queue = await rig.queue()
        await publish(rig, 40)
        topic, log = rig.broker.topic("q"), rig.partition("q")
        files, references = await files_of(rig, tmp_path, topic), await files_of(rig, tmp_path, queue.log)
        assert min(files, references) > 5, "segments are tiny"
        await rig.retention.reclaim()
        assert rig.storage.bounds(log).start == 0, "nothing was settled"
        taken = await take(queue, 40)
        await rig.retention.reclaim()
        assert rig.storage.bounds(log).start == 0, "all of it is leased"
        queue.ack(taken[:20])
        queue.ack(taken[30:])
        await rig.retention.reclaim()
        assert rig.storage.bounds(log).start == 20
        assert rig.storage.bounds(queue.lanes[0].log).start == 20
        assert await files_of(rig, tmp_path, topic) < files
        assert await files_of(rig, tmp_path, queue.log) < references
        queue.ack(taken[20:30])
        await rig.retention.reclaim()
        assert rig.storage.bounds(log).start == 40
        assert await files_of(rig, tmp_path, topic) == 0
        assert await files_of(rig, tmp_path, queue.log) == 0
        await publish(rig, 3, 40)
        assert await values_of(queue) == numbers(40, 43)


async def test_after_a_restart_the_rest_is_there(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        queue = await rig.queue()
        await publish(rig, 30)
        queue.ack(await take(queue, 17))
        await rig.retention.reclaim()
    async with running(tmp_path) as rig:
        queue = rig.found("q")
        assert queue.message_count == 13
        assert rig.retention.needed(rig.partition("q")) == 0, "nothing is known yet"
        await rig.retention.reclaim()
        assert rig.retention.needed(rig.partition("q")) == 17
        assert await values_of(queue) == numbers(17, 30)


async def test_nothing_is_written_while_nothing_changes(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        queue = await rig.queue()
        await publish(rig, 10)
        queue.ack(await take(queue, 5))
        await rig.retention.reclaim()
        commits: list[object] = []
        commit = rig.storage.commit

        def noted(operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
            commits.append(operations)
            return commit(operations)

        rig.storage.commit = noted  # type: ignore[method-assign]
        await rig.retention.reclaim()
        await rig.broker.retention.enforce()
        assert commits == []


async def test_the_slowest_queue_counts() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        await rig.exchange("orders")
        queues = [await rig.queue(name) for name in ("slow", "fast")]
        for queue in queues:
            await rig.bind("orders", queue.name)
        await publish(rig, 10, exchange="orders")
        log = rig.partition("orders")
        queues[0].ack(await take(queues[0], 3))
        queues[1].ack(await take(queues[1], 10))
        clock.advance(30 * DAY)
        await rig.broker.retention.enforce()
        assert rig.retention.needed(log) == 3
        assert rig.storage.bounds(log).start == 3, "a queue needs what is older than seven days"
        assert rig.retention.held_back == {log: 10}
        assert await values_of(queues[0]) == numbers(3, 10)
        queues[0].ack(list(queues[0].lanes[0].leases.holders.values()))
        await rig.broker.retention.enforce()
        assert rig.storage.bounds(log).start == 10


async def test_topics_of_exchanges_are_kept_as_long_as_any_topic() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        await rig.exchange("orders")
        queue = await rig.queue()
        await rig.bind("orders", "q")
        await publish(rig, 10, exchange="orders")
        queue.ack(await take(queue, 10))
        clock.advance(6 * DAY)
        await rig.broker.retention.enforce()
        assert rig.storage.bounds(rig.partition("orders")).start == 0, "a stream may want to read it"
        assert rig.storage.bounds(queue.lanes[0].log).start == 10


async def test_all_priorities_count() -> None:
    async with running() as rig:
        queue = await rig.queue(max_priority=2)
        for number in range(9):
            await rig.publish(b"%d" % number, priority=number % 3)
        queue.ack(await take(queue, 6))
        await rig.retention.reclaim()
        assert [rig.storage.bounds(lane.log).start for lane in queue.lanes] == [0, 3, 3]
        assert rig.storage.bounds(rig.partition("q")).start == 0
        queue.ack(await take(queue, 2))
        await rig.retention.reclaim()
        assert rig.storage.bounds(rig.partition("q")).start == 6


async def test_a_message_that_went_to_two_queues_is_needed_by_both() -> None:
    async with running() as rig:
        first, second = await rig.queue("first"), await rig.queue("second")
        both = Envelope(headers=PLAIN.headers, more_keys=(b"second",))
        for number in range(5):
            await rig.publish(b"%d" % number, key=b"first", envelope=both)
        log = rig.partition("first")
        first.ack(await take(first, 5))
        second.ack(await take(second, 2))
        await rig.retention.reclaim()
        assert rig.storage.bounds(log).start == 2
        await rig.namespace.delete_queue("first", SESSION)
        await rig.retention.reclaim()
        assert rig.broker.topics.find("first") is not None, "the other queue needs what is in it"
        messages = await take(second, 3)
        assert [message.value for message in messages] == numbers(2, 5)
        second.ack(messages)
        await rig.retention.reclaim()
        assert rig.broker.topics.find("first") is None


async def test_the_topic_of_a_queue_goes_with_the_queue() -> None:
    async with running() as rig:
        await rig.queue()
        await publish(rig, 3)
        await rig.namespace.delete_queue("q", SESSION)
        again = await rig.queue()
        await rig.retention.reclaim()
        assert rig.broker.topics.find("q") is not None, "the queue was declared again"
        assert rig.storage.bounds(rig.partition("q")).start == 3
        await publish(rig, 2)
        assert await values_of(again) == numbers(0, 2)
        await rig.namespace.delete_queue("q", SESSION)
        await rig.retention.reclaim()
        assert rig.broker.topics.find("q") is None


async def commit_offset(rig: Rig, topic: str, offset: int) -> None:
    new = NewOffset(partition=rig.partition(topic), offset=offset)
    assert await rig.broker.groups.offsets.commit(GroupId("readers"), NO_PRODUCER, [new]) == [None]


async def test_a_queue_that_is_read_as_a_stream_is_kept_as_long_as_any_topic() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        await publish(rig, 5)
        clock.advance(6 * DAY)
        await publish(rig, 5, 5)
        await commit_offset(rig, "q", 1)
        log = rig.partition("q")
        queue.ack(await take(queue, 8))
        await rig.broker.retention.enforce()
        assert rig.storage.bounds(log).start == 0, "the stream may read it again"
        clock.advance(2 * DAY)
        await rig.broker.retention.enforce()
        assert rig.storage.bounds(log).start == 5, "the first are older than the broker's default"
        clock.advance(30 * DAY)
        await rig.broker.retention.enforce()
        assert rig.storage.bounds(log).start == 8, "the queue needs the rest"
        queue.ack(await take(queue, 2))
        await rig.broker.retention.enforce()
        assert rig.storage.bounds(log).start == 10


@pytest.mark.parametrize("commit", [True, False])
async def test_what_an_open_transaction_may_bring_stays(commit: bool) -> None:
    bench = Bench()
    await bench.broker.start()
    await bench.broker.coordinate()
    rig = Rig(bench.broker)
    queue = await rig.queue()
    await publish(rig, 2)
    bench.topic, log = rig.broker.topic("q"), rig.partition("q")
    client = Client(bench, epoch_per_transaction=True)
    await client.init()
    await client.write(b"undecided")
    await publish(rig, 3, 3)
    queue.ack(await take(queue, 5))
    await rig.retention.reclaim()
    assert rig.storage.bounds(log).start == 2
    await client.end(commit=commit)
    await rig.retention.reclaim()
    assert rig.storage.bounds(log).start == (2 if commit else rig.storage.bounds(log).end)
    assert await values_of(queue) == ([b"undecided"] if commit else [])
    await bench.close()


async def test_what_an_admin_deletes_is_lost_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(*numbers(0, 10))
        await rig.broker.delete_records(rig.broker.topic("q"), 0, 4)
        with caplog.at_level(logging.WARNING):
            assert await values_of(queue) == numbers(4, 10)
        assert "messages 0 to 3 are lost" in caplog.text
        assert queue.leased_count == 6


async def test_compaction_leaves_what_a_queue_needs(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        overrides = {"cleanup.policy": "compact", "segment.bytes": "100", "min.cleanable.dirty.ratio": "0"}
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1, overrides=overrides)])
        await rig.exchange("orders")
        queue = await rig.queue()
        await rig.bind("orders", "q")
        await publish(rig, 10, key=b"the same", exchange="orders")
        queue.ack(await take(queue, 4))
        await rig.broker.retention.compact()
        assert await offsets_in(rig, "orders") == list(range(10)), "nothing is known yet"
        await rig.retention.reclaim()
        await rig.broker.retention.compact()
        assert await offsets_in(rig, "orders") == list(range(3, 10))
        assert await values_of(queue) == numbers(4, 10)


async def offsets_in(rig: Rig, topic: str) -> list[int]:
    return sorted(await read_records(rig.storage, rig.partition(topic)))


async def test_a_backlog_that_expires_on_disk_is_passed_over(tmp_path: Path) -> None:
    """Nobody loads what expires without a consumer: the reader is below the floor when its log is trimmed."""
    clock = ManualClock()
    async with running(tmp_path, clock=clock) as rig:
        queue = await rig.queue()
        for number in range(20):
            await rig.publish(b"%d" % number, expires_in_ms=10 if number < 15 else None)
        clock.advance(1)
        await queue.dispatcher.expiry.expire()
        assert queue.message_count == 5
        await rig.retention.reclaim()
        assert rig.storage.bounds(queue.lanes[0].log).start == 15
        assert rig.storage.bounds(rig.partition("q")).start == 15
        assert await values_of(queue) == numbers(15, 20)


async def test_a_floor_that_was_not_stored_does_not_count(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        queue = await rig.queue()
        await rig.queue("other")
        await publish(rig, 6)
        taken = await take(queue, 6)
        commit, refuse = rig.storage.commit, True

        def failing(operations: list[Operation]) -> object:
            done = commit(
                [] if refuse and any(isinstance(each, Append) for each in operations) else operations
            )
            if refuse and any(isinstance(each, Append) for each in operations):
                done.set_exception(StorageFull("no space"))
            return done

        rig.storage.commit = failing  # type: ignore[method-assign, assignment]
        wave = TransactionWave(rig.broker.publishing)
        queue.ack(taken[:4], wave)
        rig.namespace.publish(rig.namespace.router.default, b"other", b"with it", PLAIN, wave)
        with pytest.raises(StorageFull):
            await wave.commit()
        await rig.retention.reclaim()
        assert rig.storage.bounds(rig.partition("q")).start == 0
        assert queue.leased_count == 6
        refuse = False
        queue.ack(taken[:2])
        await rig.retention.reclaim()
        assert rig.storage.bounds(rig.partition("q")).start == 2
        queue.release(taken[2:])
        assert await values_of(queue) == numbers(2, 6)


async def test_records_from_streams_count() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        await rig.broker.create_topics([NewTopic(name="q", partitions=3, overrides={"retention.ms": "1000"})])
        queue = await rig.queue()
        topic = rig.broker.topic("q")
        for partition in (0, 0, 2, 1, 2, 0):
            batch = memoryview(make_batch(b"a", b"b", timestamps=[clock.now_ms()] * 2))
            await rig.broker.append([Produced(topic, partition, batch)]).wait()
        queue.ack(await take(queue, 5))
        clock.advance(60)
        await rig.broker.retention.enforce()
        starts = [rig.storage.bounds(partition).start for partition in topic.partition_ids()]
        assert starts == [4, 0, 0], "messages 5 to 11 lie in 2, 1, 2 and 0; whole batches only"
        assert queue.message_count == 7
        assert len(await values_of(queue)) == 7
