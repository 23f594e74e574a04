"""Committed offsets: what is kept, for how long, and what a restart finds."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from posthouse.broker.broker import Broker
from posthouse.broker.groups import committing
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import JoinRequest, Leaving, MemberIdentity, OfferedProtocol
from posthouse.broker.groups.offsets import CommittedOffset, Offsets
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import (
    GroupNotEmpty,
    OffsetMetadataTooLarge,
    UnknownGroup,
    UnknownPartition,
    UnstableOffset,
)
from posthouse.model.ids import GroupId, MemberId, PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.settings import Settings
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

GROUP = GroupId("grüppe")
NO_PRODUCER = MemberIdentity(member=MemberId(""))
DAY = 86_400.0

Open = Callable[[], Broker]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_broker(tmp_path: Path, clock: ManualClock) -> Open:
    settings = Settings(data=tmp_path, group_initial_rebalance_ms=0)

    def make() -> Broker:
        return Broker(FileStorage(tmp_path, clock=clock, defaults=settings.topic_defaults()), settings, clock)

    return make


@pytest.fixture
async def broker(open_broker: Open) -> AsyncIterator[Broker]:
    running = open_broker()
    await running.start()
    await running.coordinate()
    yield running
    await running.stop()


@pytest.fixture
async def topic(broker: Broker) -> Topic:
    return await made(broker)


async def made(broker: Broker, name: str = "t") -> Topic:
    [topic] = await broker.create_topics([NewTopic(name=name, partitions=3)])
    assert isinstance(topic, Topic)
    return topic


async def commit(
    broker: Broker, topic: Topic, offset: int, group: GroupId = GROUP, metadata: str = ""
) -> None:
    new = [NewOffset(partition=each, offset=offset, metadata=metadata) for each in topic.partition_ids()]
    assert await broker.groups.offsets.commit(group, NO_PRODUCER, new) == [None] * 3


async def test_very_many_offsets_are_committed_together_or_not_at_all(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committing, "_OFFSETS_PER_TURN", 2)
    offsets = broker.groups.offsets
    topic = await made(broker)
    new = [NewOffset(partition=each, offset=7) for each in topic.partition_ids()]
    with pytest.raises(UnknownPartition):
        unknown = NewOffset(partition=topic.partition(3), offset=7)
        await offsets.commit_in_turns(GROUP, NO_PRODUCER, [*new, unknown])
    assert not offsets.has(GROUP)
    await offsets.commit_in_turns(GROUP, NO_PRODUCER, new)
    assert [offsets.get(GROUP, each).offset for each in topic.partition_ids()] == [7, 7, 7]  # type: ignore[union-attr]


def found(broker: Broker, topic: Topic, group: GroupId = GROUP) -> list[int | None]:
    offsets = [broker.groups.offsets.get(group, each) for each in topic.partition_ids()]
    return [None if each is None else each.offset for each in offsets]


async def join(broker: Broker) -> MemberId:
    request = JoinRequest(
        member=None,
        protocol_type="consumer",
        protocols=(OfferedProtocol(name="range", metadata=b""),),
        session_seconds=1000,
        rebalance_seconds=10,
    )
    joined = await broker.groups.join(GROUP, request)
    assert not isinstance(joined, Exception), joined
    return joined.member


async def test_a_restart_finds_everything(open_broker: Open, clock: ManualClock) -> None:
    broker = open_broker()
    await broker.start()
    await broker.coordinate()
    topic = await made(broker)
    partition = topic.partition(1)
    wanted = NewOffset(partition=partition, offset=2**40, leader_epoch=7, metadata="Nötiz")
    await broker.groups.offsets.commit(GROUP, NO_PRODUCER, [wanted])
    await broker.stop()
    broker = open_broker()
    await broker.start()
    await broker.coordinate()
    assert broker.groups.offsets.get(GROUP, partition) == CommittedOffset(
        offset=2**40, leader_epoch=7, metadata="Nötiz", committed_ms=clock.now_ms()
    )
    assert broker.groups.offsets.groups() == [GROUP]
    assert [each.id for each in broker.groups.listed()] == [GROUP]
    await broker.stop()


async def test_the_last_commit_counts(broker: Broker, topic: Topic) -> None:
    first, second = (
        broker.groups.offsets.commit(
            GROUP, NO_PRODUCER, [NewOffset(partition=topic.partition(0), offset=offset)]
        )
        for offset in (5, 3)
    )
    await asyncio.gather(first, second)
    assert found(broker, topic) == [3, None, None]


async def test_what_is_wrong_with_single_offsets(broker: Broker, topic: Topic) -> None:
    results = await broker.groups.offsets.commit(
        GROUP,
        NO_PRODUCER,
        [
            NewOffset(partition=topic.partition(0), offset=1),
            NewOffset(partition=topic.partition(9), offset=1),
            NewOffset(partition=PartitionId(TopicId(bytes(16)), 0), offset=1),
            NewOffset(partition=topic.partition(1), offset=1, metadata="ü" * 2049),
        ],
    )
    assert [type(each) for each in results] == [
        type(None),
        UnknownPartition,
        UnknownPartition,
        OffsetMetadataTooLarge,
    ]
    assert found(broker, topic) == [1, None, None]


async def test_a_transaction_brings_offsets_in_its_own_commit(open_broker: Open) -> None:
    broker = open_broker()
    await broker.start()
    await broker.coordinate()
    topic = await made(broker)
    offsets = broker.groups.offsets
    puts = offsets.puts(GROUP, [NewOffset(partition=topic.partition(0), offset=9)])
    assert found(broker, topic) == [None] * 3
    await broker._storage.commit([*puts, Put(Space.TRANSACTION_OFFSETS, b"id", None)])
    offsets.apply(puts)
    assert found(broker, topic) == [9, None, None]
    offsets.unstable = lambda group, partition: partition.index == 1
    assert offsets.get(GROUP, topic.partition(0), stable=True)
    with pytest.raises(UnstableOffset):
        offsets.get(GROUP, topic.partition(1), stable=True)
    await broker.stop()
    broker = open_broker()
    await broker.start()
    await broker.coordinate()
    assert found(broker, topic) == [9, None, None]
    await broker.stop()


async def test_offsets_go_with_their_topic(open_broker: Open) -> None:
    broker = open_broker()
    await broker.start()
    await broker.coordinate()
    gone, kept = await made(broker), await made(broker, "kept")
    await commit(broker, gone, 1)
    await commit(broker, kept, 2)
    await commit(broker, gone, 3, GroupId("other"))
    await broker.delete_topics([gone])
    for _ in range(2):
        assert set(broker.groups.offsets.partitions(GROUP)) == set(kept.partition_ids())
        assert broker.groups.offsets.groups() == [GROUP]
        await broker.stop()
        broker = open_broker()
        await broker.start()
        await broker.coordinate()
    await broker.stop()


def test_offsets_of_topics_that_went_unnoticed_are_removed() -> None:
    known, gone = PartitionId(TopicId(b"k" * 16), 0), PartitionId(TopicId(b"g" * 16), 0)
    value = CommittedOffset(offset=1, committed_ms=0)
    puts = Offsets.puts(GROUP, {known: value, gone: value})
    offsets = Offsets()
    leftovers = offsets.load({put.key: put.value or b"" for put in puts}, {known.topic})
    assert leftovers == Offsets.removals(GROUP, [gone])
    assert offsets.partitions(GROUP) == [known]


async def test_deleting_a_group(open_broker: Open) -> None:
    broker = open_broker()
    await broker.start()
    await broker.coordinate()
    topic = await made(broker)
    under_way = broker.groups.offsets.commit(
        GROUP, NO_PRODUCER, [NewOffset(partition=topic.partition(0), offset=1)]
    )
    await asyncio.sleep(0)
    await commit(broker, topic, 2)
    late = broker.groups.offsets.commit(
        GROUP, NO_PRODUCER, [NewOffset(partition=topic.partition(0), offset=3)]
    )
    await broker.groups.delete(GROUP)
    await asyncio.gather(under_way, late)
    with pytest.raises(UnknownGroup):
        await broker.groups.delete(GROUP)
    for _ in range(2):
        assert found(broker, topic) == [None] * 3
        await broker.stop()
        broker = open_broker()
        await broker.start()
        await broker.coordinate()
    await broker.stop()


async def test_a_group_with_members_stays(broker: Broker) -> None:
    member = await join(broker)
    with pytest.raises(GroupNotEmpty):
        await broker.groups.delete(GROUP)
    broker.groups.leave(GROUP, [Leaving(member=member)])
    await broker.groups.delete(GROUP)
    assert broker.groups.listed() == []


class TestRetention:
    async def test_counts_from_the_last_commit(
        self, broker: Broker, topic: Topic, clock: ManualClock
    ) -> None:
        await commit(broker, topic, 1)
        clock.advance(6 * DAY)
        await commit(broker, topic, 2)
        clock.advance(6 * DAY)
        await broker.groups.expire()
        assert found(broker, topic) == [2, 2, 2]
        clock.advance(2 * DAY)
        await broker.groups.expire()
        assert found(broker, topic) == [None] * 3
        assert broker.groups.listed() == []

    async def test_members_keep_their_offsets(self, broker: Broker, topic: Topic, clock: ManualClock) -> None:
        await commit(broker, topic, 1)
        member = await join(broker)
        clock.advance(30 * DAY)
        await broker.groups.expire()
        assert found(broker, topic) == [1, 1, 1]
        broker.groups.leave(GROUP, [Leaving(member=member)])
        clock.advance(6 * DAY)
        await broker.groups.expire()
        assert found(broker, topic) == [1, 1, 1], "the time counts from when the last member left"
        clock.advance(2 * DAY)
        await broker.groups.expire()
        assert found(broker, topic) == [None] * 3

    async def test_a_restart_does_not_prolong_it(self, open_broker: Open, clock: ManualClock) -> None:
        broker = open_broker()
        await broker.start()
        await broker.coordinate()
        topic = await made(broker)
        await commit(broker, topic, 1)
        member = await join(broker)
        clock.advance(10 * DAY)
        broker.groups.leave(GROUP, [Leaving(member=member)])
        await asyncio.sleep(0.05)
        for days, expected in ((5, [1, 1, 1]), (3, [None, None, None])):
            clock.advance(days * DAY)
            await broker.stop()
            broker = open_broker()
            await broker.start()
            await broker.coordinate()
            await broker.groups.expire()
            assert found(broker, topic) == expected
        await broker.stop()

    async def test_members_that_a_restart_cut_off_have_time_to_come_back(
        self, open_broker: Open, clock: ManualClock
    ) -> None:
        broker = open_broker()
        await broker.start()
        await broker.coordinate()
        topic = await made(broker)
        await commit(broker, topic, 1)
        await join(broker)
        clock.advance(30 * DAY)
        await broker.stop()
        broker = open_broker()
        await broker.start()
        await broker.coordinate()
        await broker.groups.expire()
        assert found(broker, topic) == [1, 1, 1]
        await broker.stop()

    async def test_a_group_without_anything_is_forgotten(self, broker: Broker, clock: ManualClock) -> None:
        member = await join(broker)
        broker.groups.leave(GROUP, [Leaving(member=member)])
        await broker.groups.expire()
        assert len(broker.groups.listed()) == 1
        clock.advance(601)
        await broker.groups.expire()
        assert broker.groups.listed() == []


def test_ten_thousand_groups_load_fast() -> None:
    """Relative to what Python needs to look at that many things at all."""
    topic = TopicId(b"t" * 16)
    value = CommittedOffset(offset=1, committed_ms=0)
    partitions = {PartitionId(topic, index): value for index in range(20)}
    state = {
        put.key: put.value or b""
        for number in range(10_000)
        for put in Offsets.puts(GroupId(f"g{number}"), partitions)
    }
    started = time.perf_counter()
    for key, each in state.items():
        bytes(key[:20]), key[20:], len(each)
    floor = time.perf_counter() - started
    offsets, started = Offsets(), time.perf_counter()
    offsets.load(state, {topic})
    assert time.perf_counter() - started < max(20 * floor, 0.5)
