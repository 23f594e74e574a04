"""Subscriptions that are moved while members read, and members that protocols keep."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.protocol_members import ProtocolMember
from posthouse.broker.subscriptions.leases import Verdict
from posthouse.broker.subscriptions.store import new_progress
from posthouse.model.errors import GroupNotEmpty, GroupSubscribed, NotLeased, StorageFull
from posthouse.model.ids import GroupId, MemberId
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.spaces import Space
from tests.broker.subscriptions.bench import ANN, BOB, NAME, Bench

OTHER = GroupId("other")
DAYS_MS = 24 * 3_600_000


class Members:
    """Of one protocol."""

    def __init__(self, *, leases: bool, follows_resets: bool = True, **topics: str) -> None:
        """`topics` by the name of a group; each has a member."""
        self.leases = leases
        self.topics = topics
        self.follows_resets = follows_resets

    def groups(self) -> list[GroupId]:
        return [GroupId(each) for each in self.topics]

    def members(self, group: GroupId) -> list[ProtocolMember]:
        topic = self.topics.get(group)
        if topic is None:
            return []
        return [
            ProtocolMember(
                id=ANN,
                client="ann",
                host="/10.0.0.1",
                topics=frozenset([topic]),
                follows_resets=self.follows_resets,
            )
        ]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    yield bench
    await bench.broker.stop()


async def test_what_is_read_while_the_group_is_moved_is_not_leased(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.produce(b"0")
    await bench.produce(b"1")
    read = MemoryStorage.read

    async def read_while_it_moves(self: MemoryStorage, *arguments: Any, **named: Any) -> Any:
        found = await read(self, *arguments, **named)
        monkeypatch.setattr(MemoryStorage, "read", read)
        await bench.subscriptions.move(NAME, {bench.partition: 1})
        return found

    monkeypatch.setattr(MemoryStorage, "read", read_while_it_moves)
    [run] = await bench.fetch(ANN, seconds=30.0)
    assert (run.first, run.last) == (1, 1)
    [subscribed] = bench.subscriptions.progress(NAME).values()
    assert (subscribed.progress.floor, subscribed.leased) == (1, 1)


async def test_leases_from_before_a_move_are_none(bench: Bench) -> None:
    await bench.produce(b"0", b"1")
    await bench.fetch(ANN)
    [before] = bench.subscriptions.progress(NAME).values()
    await bench.subscriptions.reset(NAME, {bench.partition: 0})
    [after] = bench.subscriptions.progress(NAME).values()
    assert after.generation > before.generation
    assert isinstance(await bench.say(ANN, 0, 1, Verdict.ACCEPT), NotLeased)
    [run] = await bench.fetch(BOB)
    assert (run.first, run.last, run.deliveries) == (0, 1, 1)
    bench.clock.advance(3600)
    await bench.subscriptions.tick()  # of both, before and after
    assert after.progress.floor == 0 and after.leased == 0


class Gate:
    """Commits are in order, and end only when it is opened: well, or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.error: Exception | None = None
        commit = MemoryStorage.commit

        async def ended(storing: asyncio.Future[Any]) -> Any:
            self.reached.set()
            await self.opened.wait()
            return await storing

        def held(storage: MemoryStorage, operations: Any) -> asyncio.Future[Any]:
            storing: asyncio.Future[Any]
            if self.error is None:
                storing = commit(storage, operations)
            else:
                storing = asyncio.get_running_loop().create_future()
                storing.set_exception(self.error)
            return asyncio.ensure_future(ended(storing))

        monkeypatch.setattr(MemoryStorage, "commit", held)


async def test_nothing_is_acknowledged_or_leased_while_a_move_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be stored over the new place: after a crash the group would have skipped messages."""
    await bench.produce(b"0", b"1", b"2")
    await bench.fetch(ANN, most=2)
    gate = Gate(monkeypatch)
    moving = asyncio.ensure_future(bench.subscriptions.reset(NAME, {bench.partition: 0}))
    await gate.reached.wait()
    assert isinstance(await bench.say(ANN, 0, 1, Verdict.ACCEPT), NotLeased)
    fetching = asyncio.ensure_future(bench.fetch(BOB, seconds=30.0))
    bench.subscriptions.release(NAME, ANN, count=True)
    gate.opened.set()
    await moving
    [run] = await fetching
    assert (run.first, run.last, run.deliveries) == (0, 2, 1)
    assert await bench.say(BOB, 0, 0, Verdict.ACCEPT) is None
    assert stored_floor(bench) == 1


def stored_floor(bench: Bench) -> int:
    """What a broker that starts now would find."""
    state = bench.storage._state.get(Space.SHARE_PROGRESS, {})
    progress = new_progress(NAME, bench.partition, 0)
    for key, value in state.items():
        progress.load(key, value)
    progress.loaded(0)
    return progress.floor


async def test_a_move_that_is_not_stored_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.produce(b"0", b"1")
    await bench.fetch(ANN)
    gate = Gate(monkeypatch)
    gate.error = StorageFull("no space")
    gate.opened.set()
    with pytest.raises(StorageFull):
        await bench.subscriptions.reset(NAME, {bench.partition: 0})
    gate.error = None
    assert await bench.say(ANN, 0, 0, Verdict.ACCEPT) is None
    assert stored_floor(bench) == 1
    await bench.subscriptions.reset(NAME, {bench.partition: 0})
    assert stored_floor(bench) == 0


async def test_a_move_goes_on_without_its_caller(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.produce(b"0", b"1")
    gate = Gate(monkeypatch)
    moving = asyncio.ensure_future(bench.subscriptions.reset(NAME, {bench.partition: 1}))
    await gate.reached.wait()
    moving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await moving
    gate.opened.set()
    [run] = await bench.fetch(ANN, seconds=30.0)
    assert (run.first, run.last) == (1, 1)


async def test_a_group_that_is_deleted_while_it_is_moved(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    moving = asyncio.ensure_future(bench.subscriptions.reset(NAME, {bench.partition: 1}))
    await gate.reached.wait()
    deleting = asyncio.ensure_future(bench.subscriptions.delete(NAME))
    gate.opened.set()
    await asyncio.gather(moving, deleting)
    assert NAME not in bench.subscriptions
    for space in (Space.SHARE_GROUPS, Space.SHARE_PROGRESS):
        assert not bench.storage._state.get(space)


async def test_moves_come_one_after_the_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    first = asyncio.ensure_future(bench.subscriptions.reset(NAME, {bench.partition: 3}))
    await gate.reached.wait()
    second = asyncio.ensure_future(bench.subscriptions.reset(NAME, {bench.partition: 1}))
    gate.opened.set()
    await asyncio.gather(first, second)
    [subscribed] = bench.subscriptions.progress(NAME).values()
    assert subscribed.progress.floor == stored_floor(bench) == 1


async def test_members_that_would_not_follow_hold_a_reset_up(bench: Bench) -> None:
    bench.broker.protocol_members.add(Members(leases=True, workers="t"))
    await bench.subscriptions.reset(NAME, {bench.partition: 5})
    bench.broker.protocol_members.add(Members(leases=True, follows_resets=False, workers="t"))
    with pytest.raises(GroupNotEmpty, match="a member that would not follow"):
        await bench.subscriptions.reset(NAME, {bench.partition: 0})
    [subscribed] = bench.subscriptions.progress(NAME).values()
    assert subscribed.progress.floor == 5


async def test_a_subscription_with_members_is_not_deleted(bench: Bench) -> None:
    deleted: list[GroupId] = []
    bench.subscriptions.when_deleted(deleted.append)
    members = Members(leases=True, workers="t")
    bench.broker.protocol_members.add(members)
    with pytest.raises(GroupNotEmpty, match="a member"):
        await bench.subscriptions.delete(NAME)
    assert NAME in bench.subscriptions and not deleted
    members.topics.clear()
    await bench.subscriptions.delete(NAME)
    assert NAME not in bench.subscriptions and deleted == [NAME]


async def commit(bench: Bench) -> None:
    new = NewOffset(partition=bench.partition, offset=0)
    await bench.broker.groups.offsets.commit(OTHER, MemberIdentity(member=MemberId("")), [new])


async def test_a_group_whose_members_commit(bench: Bench) -> None:
    groups = bench.broker.groups
    members = Members(leases=False, other="t")
    bench.broker.protocol_members.add(members)
    assert OTHER in groups and groups.has_members(OTHER)
    assert [(each.id, each.state.name) for each in groups.listed()] == [(OTHER, "STABLE")]
    assert [each.id for each in groups.describe(OTHER).others] == [ANN]
    await commit(bench)
    [wrong] = await groups.delete_offsets(OTHER, [bench.partition])
    assert isinstance(wrong, GroupSubscribed)
    with pytest.raises(GroupNotEmpty):
        await groups.delete(OTHER)
    bench.clock.advance(8 * DAYS_MS / 1000)
    await groups.expire()
    assert groups.offsets.has(OTHER), "its offsets are kept while it has members"
    members.topics.clear()
    assert groups.describe(OTHER).state.name == "EMPTY"
    await groups.expire()
    async with asyncio.timeout(30):
        while OTHER in groups:
            await asyncio.sleep(0)


async def test_members_that_lease_do_not_commit(bench: Bench) -> None:
    """They may read what members that commit have read before: then those offsets are deleted."""
    groups = bench.broker.groups
    bench.broker.protocol_members.add(Members(leases=True, other="t"))
    assert OTHER not in groups and not groups.listed()
    await commit(bench)
    assert not groups.has_members(OTHER)
    with pytest.raises(GroupNotEmpty):
        await groups.delete(OTHER)
    assert await groups.delete_offsets(OTHER, [bench.partition]) == [None]


async def test_members_that_commit_cannot_in_a_subscription(bench: Bench) -> None:
    bench.broker.protocol_members.add(Members(leases=False, workers="t"))
    assert NAME not in bench.broker.groups and not bench.broker.groups.listed()
    assert len(bench.broker.protocol_members.of(NAME)) == 1
