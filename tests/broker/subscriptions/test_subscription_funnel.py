"""Limits on what all members of a subscription together get."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.broker.subscriptions.leases import LeasedRun, Verdict
from posthouse.broker.subscriptions.wishes import Taken, Wish
from tests.broker.subscriptions.bench import ANN, BOB, NAME, Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    yield bench
    await bench.broker.stop()


async def limit(bench: Bench, **limits: str) -> None:
    overrides = {f"posthouse.delivery.{name}": text for name, text in limits.items()}
    await bench.broker.group_configs.replace(NAME, overrides)


def size(runs: list[LeasedRun]) -> int:
    return sum(run.last - run.first + 1 for run in runs)


async def fetch_in_the_line(bench: Bench, member: str, waiting: int = 1) -> "asyncio.Task[list[LeasedRun]]":
    """A fetch that waits for room, behind `waiting` - 1 others."""
    fetch = asyncio.create_task(bench.fetch(ANN if member == "ann" else BOB, seconds=3600))
    async with asyncio.timeout(30):
        while (limiter := bench.broker.group_limiters.find(NAME)) is None or len(limiter._line) < waiting:
            await asyncio.sleep(0)
    return fetch


async def test_members_together_hold_no_more_than_the_limit(bench: Bench) -> None:
    await limit(bench, concurrency="5")
    await bench.produce(*[b"x"] * 20)
    assert size(await bench.fetch(ANN, most=3)) == 3
    assert size(await bench.fetch(BOB)) == 2
    assert await bench.fetch(ANN) == []
    assert await bench.say(ANN, 0, 1, Verdict.ACCEPT) is None
    assert await bench.fetch(BOB) == [LeasedRun(5, 6, 1)]


async def test_a_limit_cuts_a_batch_for_members_that_take_whole_ones(bench: Bench) -> None:
    """Without a limit, the last batch may be more than what was asked for."""
    await limit(bench, concurrency="2")
    await bench.produce(*[b"x"] * 20)
    assert await bench.fetch(ANN) == [LeasedRun(0, 1, 1)]


async def test_a_member_gets_what_there_is_room_for_whatever_it_waits_for(bench: Bench) -> None:
    """Without a limit, the fetch would wait for so many bytes."""
    await limit(bench, concurrency="1")
    await bench.produce(b"a", b"b")
    wish = Wish(max_bytes=2**20, min_bytes=2**19, max_records=100, seconds=3600)
    async with asyncio.timeout(30):
        found = await bench.subscriptions.fetch(NAME, ANN, [bench.partition], wish, lambda: True)
    taken = found[bench.partition]
    assert isinstance(taken, Taken)
    assert taken.runs == [LeasedRun(0, 0, 1)]


async def test_a_settlement_wakes_the_fetch_that_waits_longest(bench: Bench) -> None:
    await limit(bench, concurrency="1")
    await bench.produce(*[b"x"] * 9)
    assert await bench.fetch(ANN) == [LeasedRun(0, 0, 1)]
    first = await fetch_in_the_line(bench, "bob")
    second = await fetch_in_the_line(bench, "ann", 2)
    assert await bench.say(ANN, 0, 0, Verdict.ACCEPT) is None
    async with asyncio.timeout(30):
        assert await first == [LeasedRun(1, 1, 1)]
    assert not second.done()
    assert await bench.say(BOB, 1, 1, Verdict.ACCEPT) is None
    async with asyncio.timeout(30):
        assert await second == [LeasedRun(2, 2, 1)]


async def test_who_frees_a_place_does_not_get_it_before_others(bench: Bench) -> None:
    await limit(bench, concurrency="2")
    await bench.produce(*[b"x"] * 9)
    assert size(await bench.fetch(ANN)) == 2
    waiting = await fetch_in_the_line(bench, "bob")
    assert await bench.say(ANN, 0, 1, Verdict.ACCEPT) is None
    again = asyncio.create_task(bench.fetch(ANN, seconds=3600))
    async with asyncio.timeout(30):
        taken = await waiting, await again
    assert sum(map(size, taken)) <= 2
    assert taken[0], "the one that had waited"


async def test_a_released_record_frees_its_place(bench: Bench) -> None:
    await limit(bench, concurrency="1")
    await bench.produce(b"a", b"b")
    assert await bench.fetch(ANN) == [LeasedRun(0, 0, 1)]
    waiting = await fetch_in_the_line(bench, "bob")
    bench.subscriptions.release(NAME, ANN, count=True)
    async with asyncio.timeout(30):
        assert await waiting == [LeasedRun(0, 0, 2)]


async def test_a_lease_that_ends_frees_its_place(bench: Bench) -> None:
    await limit(bench, concurrency="1")
    await bench.produce(b"a", b"b")
    assert await bench.fetch(ANN) == [LeasedRun(0, 0, 1)]
    waiting = await fetch_in_the_line(bench, "bob")
    bench.clock.advance(31)
    await bench.subscriptions.tick()
    async with asyncio.timeout(30):
        assert await waiting == [LeasedRun(0, 0, 2)]


async def test_a_rate_counts_every_delivery(bench: Bench) -> None:
    await limit(bench, rate="50/s")
    await bench.produce(*[b"x"] * 20)
    assert size(await bench.fetch(ANN)) == 5
    bench.subscriptions.release(NAME, ANN, count=True)
    assert await bench.fetch(ANN) == [], "also of those that come again"
    bench.clock.advance(0.06)
    assert await bench.fetch(BOB) == [LeasedRun(0, 2, 2)]


async def test_a_fetch_waits_for_tokens(bench: Bench) -> None:
    await limit(bench, rate="3/m")
    await bench.produce(*[b"x"] * 20)
    assert size(await bench.fetch(ANN)) == 1
    waiting = await fetch_in_the_line(bench, "bob")
    limiter = bench.broker.group_limiters.find(NAME)
    assert limiter is not None
    bench.clock.advance(20)
    limiter.limiter._tokens_came()  # its timer is one of real time
    async with asyncio.timeout(30):
        assert await waiting == [LeasedRun(1, 1, 1)]
    assert limiter.limiter.held_seconds == 20


async def test_a_fetch_that_may_not_wait_gets_nothing(bench: Bench) -> None:
    await limit(bench, rate="1/m")
    await bench.produce(*[b"x"] * 20)
    assert size(await bench.fetch(ANN)) == 1
    assert await bench.fetch(ANN, seconds=0.01) == []


async def test_a_limit_that_is_lifted_wakes_those_who_wait(bench: Bench) -> None:
    await limit(bench, concurrency="1", rate="1/h")
    await bench.produce(*[b"x"] * 20)
    assert size(await bench.fetch(ANN)) == 1
    waiting = await fetch_in_the_line(bench, "bob")
    await limit(bench)
    async with asyncio.timeout(30):
        assert await waiting == [LeasedRun(1, 19, 1)]


async def test_a_wider_limit_wakes_those_who_wait(bench: Bench) -> None:
    await limit(bench, concurrency="1")
    await bench.produce(*[b"x"] * 20)
    assert size(await bench.fetch(ANN)) == 1
    waiting = await fetch_in_the_line(bench, "bob")
    await limit(bench, concurrency="4")
    async with asyncio.timeout(30):
        assert await waiting == [LeasedRun(1, 3, 1)]


async def test_a_fetch_that_is_cancelled_leaves_its_place_in_the_line(bench: Bench) -> None:
    await limit(bench, concurrency="1")
    await bench.produce(*[b"x"] * 20)
    assert size(await bench.fetch(ANN)) == 1
    first = await fetch_in_the_line(bench, "bob")
    second = await fetch_in_the_line(bench, "ann", 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert await bench.say(ANN, 0, 0, Verdict.ACCEPT) is None
    async with asyncio.timeout(30):
        assert await second == [LeasedRun(1, 1, 1)]


async def test_fetches_that_wait_for_room_end_with_the_broker(bench: Bench) -> None:
    await limit(bench, concurrency="1")
    await bench.produce(*[b"x"] * 20)
    await bench.fetch(ANN)
    waiting = [await fetch_in_the_line(bench, "bob"), await fetch_in_the_line(bench, "ann", 2)]
    bench.broker.wake_readers()
    async with asyncio.timeout(30):
        assert [await each for each in waiting] == [[], []]


async def test_many_members_under_tight_limits_get_everything_once_and_in_turn(bench: Bench) -> None:
    await limit(bench, concurrency="3")
    count, most_held = 120, 0
    await bench.produce(*[b"x"] * count)
    settled: dict[str, int] = {"ann": 0, "bob": 0}

    async def work(name: str) -> None:
        nonlocal most_held
        member = ANN if name == "ann" else BOB
        while sum(settled.values()) < count:
            runs = await bench.fetch(member, seconds=0.05)
            partition = bench.subscriptions.find(NAME, bench.partition)
            assert partition is not None
            most_held = max(most_held, partition.leased)
            await asyncio.sleep(0)
            for run in runs:
                assert await bench.say(member, run.first, run.last, Verdict.ACCEPT) is None
                settled[name] += run.last - run.first + 1

    async with asyncio.timeout(60):
        await asyncio.gather(work("ann"), work("bob"))
    assert most_held == 3
    assert min(settled.values()) >= count // 4, settled
