"""What a stream keeps, and what keeps it: limits by size and age, and records that lie in other topics."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.broker.queues import stream_segments
from posthouse.broker.queues.stragglers import StragglerLimits
from posthouse.broker.queues.stream_queue import StreamQueue
from posthouse.model.clock import ManualClock
from tests.broker.queues.rig import Rig, running, settle_turns, tiny_segments, values_of
from tests.broker.queues.stream_readers import Reader

DAY = 86_400


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        tiny_segments(patch)
        yield


async def publish(rig: Rig, first: int, end: int, *, exchange: str = "", size: int = 10) -> None:
    for number in range(first, end):
        await rig.publish(b"%0*d" % (size, number), key=b"s", exchange=exchange)


def kept(stream: StreamQueue) -> tuple[int, int]:
    return stream.first, stream.next


async def test_whole_segments_go_when_there_is_too_much() -> None:
    async with running() as rig:
        stream = await rig.stream(max_bytes=100, segment_bytes=40)
        await publish(rig, 0, 10)
        await rig.retention.reclaim()
        assert kept(stream) == (0, 10)
        await publish(rig, 10, 11)
        await rig.retention.reclaim()
        assert kept(stream) == (4, 11)
        await publish(rig, 11, 30)
        await rig.retention.reclaim()
        assert kept(stream) == (20, 30)
        assert stream.message_count == 10
        topic = rig.broker.topic("s")
        assert rig.broker.bounds(topic, 0).start == 20, "the records are let go, too"


async def test_the_last_segment_stays() -> None:
    async with running() as rig:
        stream = await rig.stream(max_bytes=1, segment_bytes=40)
        await publish(rig, 0, 7)
        await rig.retention.reclaim()
        assert kept(stream) == (4, 7)
        plain = await rig.stream("p", max_bytes=1)
        await rig.publish(b"a", b"b", key=b"p")
        await rig.retention.reclaim()
        assert kept(plain) == (0, 2)


@pytest.mark.parametrize("restart", [False, True])
async def test_segments_that_are_too_old_go(tmp_path: Path, restart: bool) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as rig:
        stream = await rig.stream(max_age_ms=60_000, segment_bytes=40)
        for first in (0, 4, 8):
            await publish(rig, first, first + 4)
            clock.advance(20)
        await rig.retention.reclaim()
        assert kept(stream) == (0, 12)
        if not restart:
            clock.advance(1)
            await rig.retention.reclaim()
            assert kept(stream) == (4, 12)
            return
    clock.advance(1)
    async with running(tmp_path, clock) as rig:
        stream = await rig.stream(max_age_ms=60_000, segment_bytes=40)
        await rig.retention.reclaim()
        assert kept(stream) == (4, 12)
        reader = Reader(stream)
        await reader.has(8)
        assert reader.offsets[0] == 4
    async with running(tmp_path, clock) as rig:
        stream = await rig.stream(max_age_ms=60_000, segment_bytes=40)
        assert kept(stream) == (4, 12), "what is gone stays gone"


async def test_a_reader_goes_on_at_the_new_start() -> None:
    async with running() as rig:
        stream = await rig.stream(max_bytes=100, segment_bytes=40)
        await publish(rig, 0, 10)
        slow = Reader(stream, credit=2)
        await slow.has(2)
        for _ in range(2):
            await rig.retention.reclaim()  # it is not to have anything in memory
        await publish(rig, 10, 40)
        await rig.retention.reclaim()
        assert kept(stream) == (32, 40)
        slow.ack(100)
        await slow.has(10)
        assert slow.offsets == [0, 1, *range(32, 40)]
        assert slow.values[2:] == [b"%010d" % number for number in range(32, 40)]


async def test_a_stream_without_limits_keeps_the_records_of_its_exchange(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as rig:
        stream = await rig.stream()
        await rig.exchange("x")
        await rig.bind("x", "s")
        rig.retention.limits = StragglerLimits(most=1000, positions=1, size=1, seconds=0)
        await publish(rig, 0, 20, exchange="x")
        for _ in range(4):
            clock.advance(30 * DAY)
            await rig.broker.retention.enforce()
        assert rig.broker.bounds(rig.broker.topic("x"), 0).start == 0
        assert rig.storage.bounds(stream.stash).end == 0, "they are not copied"
        reader = Reader(stream)
        await reader.has(20)
        await rig.namespace.delete_queue("s", None)
        for _ in range(2):
            await rig.broker.retention.enforce()
        assert rig.broker.bounds(rig.broker.topic("x"), 0).start > 10


async def test_a_limited_stream_lets_its_exchange_go(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as rig:
        stream = await rig.stream(max_age_ms=1000, segment_bytes=50)
        await rig.exchange("x")
        await rig.bind("x", "s")
        await publish(rig, 0, 20, exchange="x")
        clock.advance(30 * DAY)
        await rig.broker.retention.enforce()
        assert kept(stream) == (15, 20)
        start = rig.broker.bounds(rig.broker.topic("x"), 0).start
        assert 10 < start <= 15
        reader = Reader(stream)
        await reader.has(5)
        assert reader.offsets == list(range(15, 20))


async def test_queues_and_streams_need_their_own() -> None:
    async with running() as rig:
        stream = await rig.stream()
        queue = await rig.queue("q")
        await rig.exchange("x")
        await rig.bind("x", "s")
        await rig.bind("x", "q")
        await publish(rig, 0, 5, exchange="x")
        assert queue.purge() == 5
        await rig.retention.reclaim()
        reader = Reader(stream)
        await reader.has(5)
        assert (queue.message_count, stream.message_count) == (0, 5)


async def test_many_small_segments_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_segments, "_MOST", 8)
    async with running() as rig:
        stream = await rig.stream(max_bytes=1000, segment_bytes=1)
        for first in range(0, 200, 20):
            await publish(rig, first, first + 20)
            await rig.retention.reclaim()
        segments = stream._segments._segments
        assert len(segments) <= 8
        assert sum(segment.size for segment in segments) == stream._segments._size <= 1000
        assert segments[-1].end == 200
        assert 200 - stream.first > 50


async def test_cutting_while_the_stream_is_deleted() -> None:
    async with running() as rig:
        await rig.stream(max_bytes=10, segment_bytes=10)
        await publish(rig, 0, 10)
        await asyncio.gather(rig.retention.reclaim(), rig.namespace.delete_queue("s", None))
        await settle_turns()
        stream = await rig.stream()
        assert kept(stream) == (0, 0)


async def test_a_queue_that_is_declared_while_streams_are_cut_keeps_its_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as rig:
        await rig.stream(max_bytes=100)
        cutting, may_go_on = asyncio.Event(), asyncio.Event()
        cut = StreamQueue.cut

        async def slow_cut(stream: StreamQueue) -> None:
            cutting.set()
            await may_go_on.wait()
            await cut(stream)

        monkeypatch.setattr(StreamQueue, "cut", slow_cut)
        reclaiming = asyncio.create_task(rig.retention.reclaim())
        await cutting.wait()
        queue = await rig.queue("fresh")
        await rig.publish(b"a", b"b", key=b"fresh")
        may_go_on.set()
        await reclaiming
        assert await values_of(queue) == [b"a", b"b"]
