"""Share groups inside a broker whose time stands still unless told otherwise."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from posthouse.broker.appending import Produced
from posthouse.broker.broker import Broker
from posthouse.broker.subscriptions.leases import Acknowledgement, LeasedRun, Verdict
from posthouse.broker.subscriptions.store import lane_of
from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import NotLeased, PosthouseError, StorageFull
from posthouse.model.ids import GroupId, MemberId, PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.share_groups.errors import UnknownShareSession
from posthouse.protocols.kafka.share_groups.group import ShareBeat
from posthouse.protocols.kafka.share_groups.sessions import ShareSession
from posthouse.protocols.kafka.share_groups.share_groups import ShareGroups
from posthouse.records.builder import BatchBuilder
from posthouse.settings import Settings
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Operation

GROUP = GroupId("g")
WISH = Wish(max_bytes=2**20, max_records=100)


@dataclass
class Line:
    is_open: bool = True
    way: object = None


class FillingStorage(MemoryStorage):
    full = False

    def commit(self, operations: Sequence[Operation]) -> Any:
        if self.full:
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(StorageFull("no space"))
            return failed
        return super().commit(operations)


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.storage = FillingStorage(self.clock)
        self.broker = Broker(self.storage, Settings(memory=True), self.clock)
        self.subscriptions = self.broker.subscriptions
        self.groups = ShareGroups(
            self.subscriptions,
            self.broker.group_configs,
            find_topic=self.broker.topics.find,
            monotonic=self.broker.monotonic,
            is_other_group=self.broker.groups.__contains__,
            max_size=self.broker.settings.group_max_size,
        )

    async def start(self) -> None:
        await self.broker.start()
        await self.broker.coordinate()
        [topic] = await self.broker.create_topics([NewTopic(name="t", partitions=1)])
        assert isinstance(topic, Topic)
        self.topic = topic
        self.partition = topic.partition(0)
        await self.broker.group_configs.replace(GROUP, {"share.auto.offset.reset": "earliest"})

    async def produce(self, *values: bytes) -> None:
        builder = BatchBuilder()
        for value in values:
            builder.add(None, value, timestamp=self.clock.now_ms())
        appending = self.broker.append([Produced(self.topic, 0, memoryview(builder.build()))])
        assert appending.future is not None
        appending.results(await appending.future)

    async def join(self, name: str = "m", line: Line | None = None) -> ShareSession:
        await self.groups.beat(GROUP, ShareBeat(member=MemberId(name), epoch=0, topics=frozenset(["t"])))
        return self.groups.open_session(GROUP, MemberId(name), line or Line())

    async def take(self, session: ShareSession, wish: Wish = WISH) -> list[LeasedRun]:
        taken = (await self.groups.fetch(session, [self.partition], wish)).get(self.partition)
        if taken is None:
            return []
        assert isinstance(taken, Taken)
        return taken.runs

    async def tick(self) -> None:
        self.groups.tick()
        await self.subscriptions.tick()

    async def say(
        self, session: ShareSession, first: int, last: int, verdict: Verdict
    ) -> PosthouseError | None:
        said = {self.partition: [Acknowledgement(first, last, [verdict])]}
        return (await self.subscriptions.acknowledge(GROUP, session.member, said))[self.partition]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    await rig.start()
    yield rig
    await rig.broker.stop()


async def test_a_lease_ends_with_its_time(rig: Rig) -> None:
    first, second = await rig.join("a"), await rig.join("b")
    await rig.produce(b"x", b"y")
    assert await rig.take(first) == [LeasedRun(0, 1, 1)]
    rig.clock.advance(29.9)
    assert await rig.take(second) == []
    assert await rig.say(first, 0, 0, Verdict.ACCEPT) is None
    rig.clock.advance(0.2)
    assert await rig.take(second) == [LeasedRun(1, 1, 2)]
    assert await rig.say(first, 1, 1, Verdict.ACCEPT) is not None
    assert await rig.say(second, 1, 1, Verdict.ACCEPT) is None


async def test_a_member_with_no_room_for_bytes_gets_none(rig: Rig) -> None:
    session = await rig.join()
    await rig.produce(b"x")
    assert await rig.take(session, Wish(max_bytes=0, max_records=10)) == []
    assert await rig.take(session, Wish(max_bytes=1, max_records=10)) == [LeasedRun(0, 0, 1)]


async def test_a_silent_member_is_out_and_its_leases_come_back(rig: Rig) -> None:
    await rig.broker.group_configs.replace(
        GROUP, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "60000"}
    )
    silent, other = await rig.join("a"), await rig.join("b")
    await rig.produce(b"x")
    assert await rig.take(silent) == [LeasedRun(0, 0, 1)]
    rig.clock.advance(44)
    await rig.groups.beat(GROUP, ShareBeat(member=MemberId("b"), epoch=other_epoch(rig, "b")))
    rig.clock.advance(2)
    await rig.tick()
    assert [member.id for member in rig.groups.get(GROUP)] == ["b"]
    assert await rig.take(other) == [LeasedRun(0, 0, 2)]
    with pytest.raises(UnknownShareSession):
        rig.groups.sessions.follow(GROUP, MemberId("a"), 1, Line())


def other_epoch(rig: Rig, name: str) -> int:
    return next(member.epoch for member in rig.groups.get(GROUP) if member.id == name)


async def test_a_connection_that_ends_while_it_waits_gets_nothing(rig: Rig) -> None:
    line = Line()
    session, other = await rig.join("a", line), await rig.join("b")
    waiting = asyncio.ensure_future(
        rig.groups.fetch(session, [rig.partition], Wish(max_bytes=1000, max_records=10, seconds=30))
    )
    await asyncio.sleep(0.01)
    line.is_open = False
    await rig.tick()
    await rig.produce(b"x")
    assert await waiting == {}
    assert await rig.take(other) == [LeasedRun(0, 0, 1)]


async def test_a_session_that_ends_keeps_the_leases_of_another_broker(rig: Rig) -> None:
    here, there = Line(), Line(way="another broker")
    session = await rig.join("a", here)
    session.change([rig.partition], [])
    await rig.produce(b"x")
    assert await rig.take(session) == [LeasedRun(0, 0, 1)]
    relayed = rig.groups.open_session(GROUP, MemberId("a"), there)
    rig.groups.end_session(relayed, count=False)
    other = await rig.join("b")
    assert await rig.take(other) == []
    rig.groups.end_session(session, count=False)
    assert await rig.take(other) == [LeasedRun(0, 0, 1)]


async def test_the_last_session_of_a_member_releases_all_its_leases(rig: Rig) -> None:
    here, there = Line(), Line(way="another broker")
    session = await rig.join("a", here)
    await rig.produce(b"x")
    assert await rig.take(session) == [LeasedRun(0, 0, 1)]
    relayed = rig.groups.open_session(GROUP, MemberId("a"), there)
    here.is_open = False
    await rig.tick()
    assert await rig.take(await rig.join("b")) == []
    rig.groups.end_session(relayed, count=False)
    assert await rig.take(await rig.join("c")) == [LeasedRun(0, 0, 1)]


async def test_many_who_wait_each_get_something_once(rig: Rig) -> None:
    sessions = [await rig.join(f"m{number}") for number in range(8)]
    wish = Wish(max_bytes=2**20, max_records=1, is_strict=True, seconds=30)
    waiting = [asyncio.ensure_future(rig.take(session, wish)) for session in sessions]
    await asyncio.sleep(0.01)
    await rig.produce(*[b"v"] * 5)
    async with asyncio.timeout(30):
        while sum(each.done() for each in waiting) < 5:
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    assert sum(each.done() for each in waiting) == 5
    await rig.produce(*[b"w"] * 5)
    taken = await asyncio.gather(*waiting)
    assert sorted(run.first for runs in taken for run in runs) == list(range(8))
    assert all(run.first == run.last for runs in taken for run in runs)


async def test_an_acknowledgement_that_cannot_be_stored_is_told_and_stored_later(rig: Rig) -> None:
    session = await rig.join()
    await rig.produce(b"x", b"y")
    await rig.take(session)
    rig.storage.full = True
    assert isinstance(await rig.say(session, 0, 0, Verdict.ACCEPT), StorageFull)
    rig.storage.full = False
    assert await rig.say(session, 1, 1, Verdict.ACCEPT) is None
    progress = rig.subscriptions.progress(GROUP)[rig.partition].progress
    assert (progress.floor, progress.is_changed) == (2, False)


async def test_whoever_shares_a_partition_reads_it(rig: Rig) -> None:
    assert not rig.subscriptions.is_read(rig.partition)
    await rig.take(await rig.join())
    assert rig.subscriptions.is_read(rig.partition)


async def test_a_group_that_cannot_be_stored_is_not_there(rig: Rig) -> None:
    rig.storage.full = True
    with pytest.raises(StorageFull):
        await rig.join()
    assert GROUP not in rig.subscriptions
    rig.storage.full = False
    await rig.produce(b"x")
    assert await rig.take(await rig.join()) == [LeasedRun(0, 0, 1)]


async def test_a_group_can_forbid_to_hold_records_for_longer(rig: Rig) -> None:
    own = {"share.auto.offset.reset": "earliest", "share.renew.acknowledge.enable": "false"}
    await rig.broker.group_configs.replace(GROUP, own)
    member = await rig.join()
    await rig.produce(b"x")
    assert await rig.take(member) == [LeasedRun(0, 0, 1)]
    assert isinstance(await rig.say(member, 0, 0, Verdict.RENEW), NotLeased)
    await rig.broker.group_configs.replace(GROUP, {})
    assert await rig.say(member, 0, 0, Verdict.RENEW) is None


async def test_assignments_have_a_least_interval(rig: Rig) -> None:
    await rig.broker.group_configs.replace(GROUP, {"share.assignment.interval.ms": "5000"})
    await rig.join("a")
    [grown] = [await rig.broker.create_partitions("t", 2)]

    async def assigned() -> int:
        beat = ShareBeat(member=MemberId("a"), epoch=other_epoch(rig, "a"))
        answer = await rig.groups.beat(GROUP, beat)
        return 0 if answer.assignment is None else answer.assignment[grown.id]

    rig.clock.advance(4.9)
    assert await assigned() == 0
    rig.clock.advance(0.2)
    assert await assigned() == 2


def test_no_two_partitions_share_a_lane() -> None:
    topics = [TopicId(bytes([number]) * 16) for number in range(3)]
    lanes = {
        lane_of(GroupId(group), PartitionId(topic, index))
        for group in ("g", "h")
        for topic in topics
        for index in (0, 1, 65_535, 65_536, 65_537, 99_999)
    }
    assert len(lanes) == 2 * 3 * 6
