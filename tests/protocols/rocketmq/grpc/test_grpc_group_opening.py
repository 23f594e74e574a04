"""Groups that begin to consume: where, and that this happens once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.subscriptions.subscriptions import Subscriptions
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import GroupNotEmpty
from posthouse.model.ids import GroupId, MemberId
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq import first_offsets
from posthouse.protocols.rocketmq.grpc.groups import GrpcGroups
from tests.broker.subscriptions.bench import Bench

GROUP = GroupId("billing")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    yield bench
    await bench.broker.stop()


def floors(bench: Bench) -> list[int]:
    progress = bench.subscriptions.progress(GROUP)
    return [progress[each].progress.floor for each in sorted(progress, key=lambda each: each.index)]


async def test_who_comes_while_another_begins_does_not_begin_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = GrpcGroups(bench.broker)
    await bench.produce(b"0", b"1", b"2")
    known = NewOffset(partition=bench.partition, offset=2)
    await bench.broker.groups.offsets.commit(GROUP, MemberIdentity(member=MemberId("")), [known])
    [other] = await bench.broker.create_topics([NewTopic(name="other", partitions=1)])
    assert isinstance(other, Topic)
    moves: list[Any] = []
    move = Subscriptions.move

    async def moved(self: Subscriptions, group: GroupId, offsets: Any) -> None:
        moves.append(offsets)
        for _ in range(10):
            await asyncio.sleep(0)
        await move(self, group, offsets)

    monkeypatch.setattr(Subscriptions, "move", moved)
    first = asyncio.ensure_future(groups.opened(GROUP, other))
    second = asyncio.ensure_future(groups.opened(GROUP, bench.topic))
    thirds: list[Any] = []
    first.add_done_callback(lambda _: thirds.append(asyncio.ensure_future(groups.opened(GROUP, bench.topic))))
    await asyncio.gather(first, second)
    await asyncio.gather(*thirds)
    assert len(moves) == 2 and len(thirds) == 1
    assert bench.subscriptions.progress(GROUP)[bench.partition].progress.floor == 2


async def test_a_client_that_leaves_does_not_interrupt_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = GrpcGroups(bench.broker)
    known = NewOffset(partition=bench.partition, offset=0)
    await bench.broker.groups.offsets.commit(GROUP, MemberIdentity(member=MemberId("")), [known])
    moved, go_on = asyncio.Event(), asyncio.Event()
    move = Subscriptions.move

    async def slowly(self: Subscriptions, group: GroupId, offsets: Any) -> None:
        await move(self, group, offsets)
        moved.set()
        await go_on.wait()

    monkeypatch.setattr(Subscriptions, "move", slowly)
    opening = asyncio.ensure_future(groups.opened(GROUP, bench.topic))
    await moved.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    go_on.set()
    async with asyncio.timeout(30):
        while GROUP in bench.broker.groups:
            await asyncio.sleep(0.001)
    assert floors(bench) == [0]


async def test_partitions_that_a_topic_gets_later_are_read_from_their_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = GrpcGroups(bench.broker)
    await groups.opened(GROUP, bench.topic)
    topic = await bench.broker.create_partitions("t", 2)
    monkeypatch.setattr(first_offsets, "FROM_THE_START_BYTES", 0)
    bench.topic = topic
    await bench.produce(b"0", partition=1)
    await groups.opened(GROUP, topic)
    assert floors(bench) == [0, 0]
    [other] = await bench.broker.create_topics([NewTopic(name="other", partitions=1)])
    assert isinstance(other, Topic)
    bench.topic = other
    await bench.produce(b"0")
    await groups.opened(GROUP, other)
    assert bench.subscriptions.progress(GROUP)[other.partition(0)].progress.floor == 1


async def test_a_group_with_consumers_of_kafka_is_not_taken_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = GrpcGroups(bench.broker)
    monkeypatch.setattr(bench.broker.groups, "has_members", lambda group: group == GROUP)
    with pytest.raises(GroupNotEmpty, match="stop them"):
        await groups.opened(GROUP, bench.topic)
    assert GROUP not in bench.subscriptions
