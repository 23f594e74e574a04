"""Members that take only some of the records, and members that take them in the order of their keys."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from posthouse.broker.subscriptions import fetching
from posthouse.broker.subscriptions.batches import Found, raw_records
from posthouse.broker.subscriptions.key_order import KeyOrder
from posthouse.broker.subscriptions.leases import LeasedRun, LeaseTerms, Verdict
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.broker.subscriptions.selection import Selected
from posthouse.model.errors import NotLeased
from posthouse.model.ids import PartitionId
from posthouse.records.raw import RawRecord
from tests.broker.subscriptions.bench import ANN, BOB, NAME, Bench

Wants = Callable[[RawRecord], bool]


class Some:
    """Takes what it wants; what the others do not want either is nobody's."""

    def __init__(self, name: str, wants: Wants, others: Sequence[Wants] = ()) -> None:
        self.name = name
        self.wants = wants
        self.others = others
        self.seen: list[int] = []
        self.before_lease: Callable[[], object] = lambda: None
        self.selected: list[int] = []
        """Of the last pass."""

    def begin(self) -> None:
        self.selected.clear()

    def select(self, partition: PartitionId, subscribed: SubscribedPartition, found: Found) -> Selected:
        records, _ = raw_records(found.data, found.offsets[0], found.offsets[-1] + 1)
        ready = [each for each in records if each.offset in set(found.offsets)]
        self.seen += [each.offset for each in ready]
        taken = [each.offset for each in ready if self.wants(each)]
        self.selected += taken
        unwanted = [
            each.offset
            for each in ready
            if not self.wants(each) and not any(wants(each) for wants in self.others)
        ]
        return Selected(taken, unwanted, taken[0] if taken else None)

    def confirm(
        self, partition: PartitionId, subscribed: SubscribedPartition, offsets: list[int]
    ) -> list[int]:
        self.before_lease()
        return offsets

    def leased(self, partition: PartitionId, subscribed: SubscribedPartition, offsets: list[int]) -> None:
        """Nobody asks."""

    def size(self, partition: PartitionId, offsets: Sequence[int]) -> int:
        return len(offsets)


class Ordered:
    """Takes everything, in the order of keys."""

    name = "ordered"

    def __init__(self, order: KeyOrder) -> None:
        self.order = order
        self.keys: dict[int, bytes] = {}

    def begin(self) -> None:
        self.keys.clear()

    def select(self, partition: PartitionId, subscribed: SubscribedPartition, found: Found) -> Selected:
        records, _ = raw_records(found.data, found.offsets[0], found.offsets[-1] + 1)
        self.keys |= {each.offset: each.key or b"" for each in records}
        free = self.confirm(partition, subscribed, found.offsets)
        return Selected(free, (), found.offsets[0])

    def confirm(
        self, partition: PartitionId, subscribed: SubscribedPartition, offsets: list[int]
    ) -> list[int]:
        return [
            offset for offset in offsets if not self.order.is_held(partition, subscribed, self.keys[offset])
        ]

    def leased(self, partition: PartitionId, subscribed: SubscribedPartition, offsets: list[int]) -> None:
        self.order.lease(partition, offsets, self.keys)

    def size(self, partition: PartitionId, offsets: Sequence[int]) -> int:
        return 0


def tagged(tag: bytes) -> Wants:
    return lambda record: record.value.startswith(tag)


def offsets(runs: list[LeasedRun]) -> list[int]:
    return [offset for run in runs for offset in range(run.first, run.last + 1)]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    yield bench
    await bench.broker.stop()


def floor(bench: Bench) -> int:
    return bench.subscriptions.progress(NAME)[bench.partition].progress.floor


async def test_each_member_gets_what_it_wants_and_nobody_what_nobody_wants(bench: Bench) -> None:
    await bench.produce(b"a0", b"b1", b"c2", b"a3", b"b4")
    ann, bob = Some("a", tagged(b"a"), [tagged(b"b")]), Some("b", tagged(b"b"), [tagged(b"a")])
    assert offsets(await bench.fetch(ANN, selection=ann)) == [0, 3]
    assert offsets(await bench.fetch(BOB, selection=bob)) == [1, 4]
    for offset, member in ((0, ANN), (3, ANN), (1, BOB), (4, BOB)):
        assert await bench.say(member, offset, offset, Verdict.ACCEPT) is None
    assert floor(bench) == 5, "the record that nobody wants is settled, too"


async def test_what_others_want_is_looked_at_once(bench: Bench) -> None:
    await bench.produce(b"a0", b"a1", b"a2")
    bob = Some("b", tagged(b"b"), [tagged(b"a")])
    assert await bench.fetch(BOB, selection=bob) == []
    await bench.produce(b"a3", b"b4")
    again = Some("b", tagged(b"b"), [tagged(b"a")])
    assert offsets(await bench.fetch(BOB, selection=again)) == [4]
    assert again.seen == [3, 4]
    assert offsets(await bench.fetch(ANN, selection=Some("a", tagged(b"a"), [tagged(b"b")]))) == [0, 1, 2, 3]


async def test_what_comes_back_is_looked_at_again(bench: Bench) -> None:
    await bench.produce(b"b0", b"a1", b"b2")
    bob = Some("b", tagged(b"b"), [tagged(b"a")])
    assert offsets(await bench.fetch(BOB, selection=bob)) == [0, 2]
    await bench.produce(b"a3")
    assert await bench.fetch(BOB, selection=bob) == []
    assert await bench.say(BOB, 0, 0, Verdict.RELEASE) is None
    assert offsets(await bench.fetch(BOB, selection=bob)) == [0]


async def test_what_comes_back_while_others_are_read_is_looked_at_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.produce(b"b0")
    bob = Some("b", tagged(b"b"), [tagged(b"a")])
    assert offsets(await bench.fetch(BOB, selection=bob)) == [0]
    await bench.produce(b"a1")
    read = bench.broker._storage.read

    async def then_it_comes_back(*arguments: Any, **named: Any) -> Any:
        found = await read(*arguments, **named)
        bench.subscriptions.release(NAME, BOB, count=False)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(bench.broker._storage, "read", then_it_comes_back)
        assert await bench.fetch(ANN, selection=bob) == []
    assert offsets(await bench.fetch(ANN, selection=bob)) == [0]


async def test_nothing_is_overlooked_while_few_leases_are_left(bench: Bench) -> None:
    await bench.broker.group_configs.replace(NAME, {"share.partition.max.record.locks": "100"})
    await bench.produce(*[b"a"] * 99)
    await bench.produce(b"a", b"a", b"b")
    ann, bob = Some("a", tagged(b"a"), [tagged(b"b")]), Some("b", tagged(b"b"), [tagged(b"a")])
    assert len(offsets(await bench.fetch(ANN, most=99, selection=ann))) == 99
    assert offsets(await bench.fetch(BOB, selection=bob)) == [101]


async def test_a_large_batch_is_looked_at_in_parts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_LOOK_RECORDS", 3)
    await bench.produce(*[b"a"] * 10, b"b", b"a")
    bob = Some("b", tagged(b"b"), [tagged(b"a")])
    assert offsets(await bench.fetch(BOB, selection=bob)) == [10]
    assert bob.seen == [*range(10), 10, 11]


async def test_an_acknowledgement_that_is_too_late_wakes_those_who_wait(bench: Bench) -> None:
    await bench.produce(b"0")
    assert offsets(await bench.fetch(ANN)) == [0]
    waiting = asyncio.ensure_future(bench.fetch(BOB, seconds=30))
    for _ in range(5):
        await asyncio.sleep(0)
    bench.clock.advance(10_000)
    assert isinstance(await bench.say(ANN, 0, 0, Verdict.ACCEPT), NotLeased)
    assert await waiting == [LeasedRun(0, 0, 2)]


async def test_leases_that_have_ended_take_no_memory_until_their_deadline(bench: Bench) -> None:
    await bench.produce(b"first", *[b"v"] * 1000)
    assert offsets(await bench.fetch(ANN, most=1, lock_seconds=10_000)) == [0]
    subscribed = bench.subscriptions.progress(NAME)[bench.partition]
    for offset in range(1, 1001):
        assert offsets(await bench.fetch(ANN, most=1, lock_seconds=10_000)) == [offset]
        assert await bench.say(ANN, 0, 0, Verdict.RENEW, 10_000) is None
        assert await bench.say(ANN, offset, offset, Verdict.ACCEPT) is None
        assert len(subscribed._deadlines) <= 100
    bench.clock.advance(10_001)
    assert await bench.fetch(BOB) == [LeasedRun(0, 0, 2)]


async def test_what_a_member_that_has_gone_wanted_is_settled_by_those_who_stay(bench: Bench) -> None:
    await bench.produce(b"a0", b"a1")
    assert await bench.fetch(BOB, selection=Some("b", tagged(b"b"), [tagged(b"a")])) == []
    assert floor(bench) == 0
    bench.subscriptions.selection_changed(NAME)
    assert await bench.fetch(BOB, selection=Some("b", tagged(b"b"))) == []
    assert floor(bench) == 2


async def test_a_fetch_goes_on_behind_a_long_way_of_unwanted_records(bench: Bench) -> None:
    for _ in range(40):
        await bench.produce(*[b"a" * 10_000] * 10)
    await bench.produce(b"b")
    found = await bench.fetch(BOB, selection=Some("b", tagged(b"b"), [tagged(b"a")]), seconds=30)
    assert offsets(found) == [400]


async def test_who_wants_nothing_yet_waits(bench: Bench) -> None:
    await bench.produce(b"a0")
    waiting = asyncio.ensure_future(
        bench.fetch(BOB, selection=Some("b", tagged(b"b"), [tagged(b"a")]), seconds=30)
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    await bench.produce(b"b1")
    assert offsets(await waiting) == [1]


async def test_who_comes_too_late_begins_anew(bench: Bench) -> None:
    """What it had selected was leased to somebody else, and counts no more."""
    await bench.produce(b"a0")
    ann = Some("a", tagged(b"a"))
    subscribed = bench.subscriptions.progress(NAME)[bench.partition]
    terms = LeaseTerms(lock_seconds=60, max_deliveries=5, max_leases=10)
    ann.before_lease = lambda: subscribed.acquire([0], BOB, bench.clock.monotonic(), terms, 0)
    waiting = asyncio.ensure_future(bench.fetch(ANN, selection=ann, seconds=30))
    for _ in range(5):
        await asyncio.sleep(0)
    assert ann.seen == [0]
    assert not waiting.done()
    await bench.produce(b"a1")
    assert offsets(await waiting) == [1]
    assert ann.selected == [1]


async def test_records_of_a_key_wait_for_those_before_and_others_do_not(bench: Bench) -> None:
    await bench.produce(b"0", b"1", key=b"x")
    order = KeyOrder()
    assert offsets(await bench.fetch(ANN, selection=Ordered(order))) == [0, 1]
    await bench.produce(b"2", key=b"x")
    await bench.produce(b"3", key=b"y")
    assert offsets(await bench.fetch(BOB, selection=Ordered(order))) == [3]
    assert await bench.say(ANN, 0, 0, Verdict.ACCEPT) is None
    assert await bench.fetch(BOB, selection=Ordered(order)) == []
    assert await bench.say(ANN, 1, 1, Verdict.RELEASE) is None
    assert offsets(await bench.fetch(BOB, selection=Ordered(order))) == [1, 2]


async def test_two_who_look_at_the_same_time_do_not_share_a_key(bench: Bench) -> None:
    await bench.produce(b"0", b"1", b"2", key=b"x")
    order = KeyOrder()
    one, two = await asyncio.gather(
        bench.fetch(ANN, most=1, selection=Ordered(order)), bench.fetch(BOB, selection=Ordered(order))
    )
    assert sorted([offsets(one), offsets(two)], key=len)[0] == []


async def test_keys_that_nobody_holds_are_forgotten(bench: Bench) -> None:
    order = KeyOrder()
    for number in range(100):
        await bench.produce(b"v", key=b"%d" % number)
    assert len(await bench.fetch(ANN, selection=Ordered(order))) == 1
    assert len(order) == 100
    assert await bench.say(ANN, 0, 99, Verdict.ACCEPT) is None
    order.tidy(bench.partition, bench.subscriptions.progress(NAME)[bench.partition])
    assert len(order) == 0


async def test_a_lease_lasts_as_long_as_its_member_wants(bench: Bench) -> None:
    await bench.produce(b"0", b"1")
    assert offsets(await bench.fetch(ANN, most=1, lock_seconds=5)) == [0]
    assert offsets(await bench.fetch(ANN, lock_seconds=300)) == [1]
    bench.clock.advance(6)
    assert await bench.fetch(BOB) == [LeasedRun(0, 0, 2)]
    assert await bench.say(BOB, 0, 0, Verdict.RENEW, 200) is None
    bench.clock.advance(150)
    assert await bench.fetch(ANN) == []
    bench.clock.advance(151)
    assert await bench.fetch(ANN) == [LeasedRun(0, 0, 3), LeasedRun(1, 1, 2)]


async def test_a_lease_for_as_long_as_a_member_is_connected_ends_soon_after_its_connection(
    bench: Bench,
) -> None:
    await bench.produce(b"0", b"1", b"2")
    assert offsets(await bench.fetch(ANN, most=1, lock_seconds=10_000, while_connected=True)) == [0]
    assert offsets(await bench.fetch(ANN, most=1, lock_seconds=10_000)) == [1]
    assert offsets(await bench.fetch(BOB, most=1, lock_seconds=10_000, while_connected=True)) == [2]
    bench.subscriptions.end_long_leases(NAME, ANN, 60)
    bench.clock.advance(30)
    bench.subscriptions.end_long_leases(NAME, ANN, 60)
    assert await bench.fetch(BOB) == []
    bench.clock.advance(31)
    assert await bench.fetch(BOB) == [LeasedRun(0, 0, 2)], "not later because of another connection"


async def test_what_a_member_suspends_does_not_count_as_delivered(bench: Bench) -> None:
    await bench.produce(b"0")
    for _ in range(3):
        assert await bench.fetch(ANN) == [LeasedRun(0, 0, 1)]
        assert await bench.say(ANN, 0, 0, Verdict.RENEW, 60, counts=False) is None
        bench.clock.advance(61)
    assert await bench.fetch(ANN) == [LeasedRun(0, 0, 1)]
    assert await bench.say(ANN, 0, 0, Verdict.RELEASE, counts=False) is None
    assert await bench.fetch(ANN) == [LeasedRun(0, 0, 1)]
    assert await bench.say(ANN, 0, 0, Verdict.RELEASE) is None
    assert await bench.fetch(ANN) == [LeasedRun(0, 0, 2)]
