"""Streams against a list: any order of publishing, reading, retention, restarts and crashes."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posthouse.broker.appending import Produced
from posthouse.broker.queues import needs, stream_reading, stream_window
from posthouse.broker.queues.stream_queue import StreamQueue
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from tests.broker.queues.lazy_storage import LazyStorage
from tests.broker.queues.rig import Rig, running, settle_turns
from tests.broker.queues.stream_readers import Reader
from tests.examples import examples
from tests.storage.batches import make_batch

SEGMENT = 30
LIMITS: dict[str, Any] = {"max_bytes": 100, "max_age_ms": 50_000, "segment_bytes": SEGMENT}

publishes = st.tuples(st.sampled_from(["send", "exchange", "both", "kafka"]), st.integers(1, 6))
begins = st.tuples(st.just("read"), st.sampled_from(["first", "last", "next", "time", "offset"]))
steps = st.lists(
    st.one_of(
        publishes,
        begins,
        st.tuples(st.just("ack"), st.integers(1, 12)),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.integers(1, 40)),
        st.tuples(st.just("reclaim"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["restart", "crash"]), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


@dataclass(slots=True)
class Entry:
    value: bytes
    time: int
    batch: int
    """The offset of the first that was written with it."""
    size: int


@dataclass(slots=True)
class Expected:
    """What one reader is to get next."""

    reader: Reader
    next: int
    seen: int = 0


@dataclass
class World:
    clock: ManualClock
    limited: bool
    storage: LazyStorage
    entries: list[Entry] = field(default_factory=list)
    readers: list[Expected] = field(default_factory=list)
    floor: int = 0
    life: AsyncExitStack = field(default_factory=AsyncExitStack)
    rig: Rig = field(init=False)
    stream: StreamQueue = field(init=False)

    async def begin(self) -> None:
        self.rig = await self.life.enter_async_context(running(storage=self.storage, clock=self.clock))
        self.stream = await self.rig.stream(**LIMITS if self.limited else {})
        await self.rig.exchange("x")
        await self.rig.bind("x", "s")
        if not self.entries:
            await self.rig.broker.create_topics([NewTopic(name="s", partitions=2)])
        assert (self.stream.first, self.stream.next) == (self.floor, len(self.entries))

    async def step(self, name: str, choice: int | str) -> None:
        match name, choice:
            case "send" | "exchange" | "both" | "kafka", int(count):
                await self.publish(name, count)
            case "read", str(start):
                await self.read(start)
            case "ack", int(count):
                for each in self.readers:
                    each.reader.ack(count)
            case "leave", int(number) if self.readers:
                self.readers.pop(number % len(self.readers)).reader.leave()
            case "wait", int(seconds):
                self.clock.advance(seconds)
            case "reclaim", int(times):
                for _ in range(times):
                    await self.rig.retention.reclaim()
            case "restart" | "crash", _:
                await self.restart(name == "crash")
        await settle_turns(50)
        self.check()

    async def publish(self, how: str, count: int) -> None:
        first, now = len(self.entries), self.clock.now_ms()
        values = [b"%05d" % number for number in range(first, first + count)]
        self.entries += [Entry(value, now, first, len(value)) for value in values]
        if how == "kafka":
            topic = self.rig.broker.topic("s")
            batch = make_batch(*values)
            self.entries[first].size = len(batch) - sum(len(value) for value in values[1:])
            produced = Produced(topic, first % 2, memoryview(batch))
            await self.rig.broker.append([produced]).wait()
        elif how == "both":  # one wave, whose topics are two
            half = len(values) // 2
            sent = self.rig.publish(*values[:half], key=b"s") if half else asyncio.sleep(0)
            await asyncio.gather(sent, self.rig.publish(*values[half:], key=b"s", exchange="x"))
        else:
            await self.rig.publish(*values, key=b"s", exchange="x" if how == "exchange" else "")

    async def read(self, start: str) -> None:
        stream, end = self.stream, len(self.entries)
        ago = 30_000
        match start:
            case "first":
                expected = given_start = self.floor
                assert stream.first == expected
            case "next":
                expected = given_start = stream.next
                assert expected == end
            case "last":
                given_start = await stream.last()
                expected = max(self.entries[-1].batch, self.floor) if end > self.floor else end
            case "time":
                given_start = await stream.ago(ago)
                wanted = self.clock.now_ms() - ago
                expected = next((at for at in range(end) if self.entries[at].time >= wanted), end)
                expected = max(expected, self.floor)
            case _:
                given_start = (len(self.readers) * 7) % (end + 3)
                expected = max(given_start, self.floor)
        assert given_start == expected or start == "offset"
        self.readers.append(Expected(Reader(stream, given_start, credit=3), expected))

    async def restart(self, crash: bool) -> None:
        if crash:
            after = self.storage.left_behind()
        await self.life.aclose()
        if not crash:
            after = self.storage.left_behind()
        self.storage = after
        self.readers.clear()
        self.life = AsyncExitStack()
        await self.begin()

    def check(self) -> None:
        """Every reader has got what comes next, as far as its credit went, and nothing else."""
        floor = self.stream.first
        assert floor >= self.floor
        if not self.limited:
            assert floor == 0
        self.check_floor(self.floor, floor)
        self.floor = floor
        for each in self.readers:
            new = each.reader.taken[each.seen :]
            for message, value in zip(new, each.reader.values[each.seen :], strict=True):
                if message.position != each.next:
                    assert each.next < message.position <= floor, "only what retention took is passed over"
                assert value == self.entries[message.position].value
                each.next = message.position + 1
            each.seen = len(each.reader.taken)
            assert each.reader.credit == 0 or each.next >= len(self.entries), "nothing is held back"
        assert self.stream.message_count == len(self.entries) - floor

    def check_floor(self, before: int, floor: int) -> None:
        if floor == before:
            return
        sizes = [entry.size for entry in self.entries]
        assert sum(sizes[before:floor]) >= SEGMENT, "whole segments"
        newest = max(entry.time for entry in self.entries[before:floor])
        too_much = sum(sizes[before:]) > LIMITS["max_bytes"]
        assert too_much or newest < self.clock.now_ms() - LIMITS["max_age_ms"]


@pytest.fixture(autouse=True, scope="module")
def tiny() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_window, "WINDOW", 5)
        patch.setattr(stream_window, "WINDOW_BYTES", 40)
        patch.setattr(stream_window, "MEMORY", 6000)
        patch.setattr(stream_reading, "AT_ONCE", 3)
        patch.setattr(needs, "SPANS", 2)
        yield


async def run(limited: bool, plan: list[tuple[str, int | str]]) -> None:
    clock = ManualClock()
    world = World(clock, limited, LazyStorage(clock))
    try:
        await world.begin()
        for name, choice in plan:
            await world.step(name, choice)
        for _ in range(3):
            await world.rig.retention.reclaim()
        await world.step("ack", 100)
        for each in world.readers:
            assert each.next >= len(world.entries)
    finally:
        await world.life.aclose()


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(limited=st.booleans(), plan=steps)
def test_streams_are_lists(limited: bool, plan: list[tuple[str, int | str]]) -> None:
    asyncio.run(run(limited, plan))
