"""Subscriptions as any protocol uses them: members are ids, and there are no heartbeats or sessions."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.broker.subscriptions.leases import LeasedRun, Verdict
from posthouse.model.errors import NotLeased, UnknownGroup
from tests.broker.subscriptions.bench import ANN, BOB, NAME, Bench


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    yield bench
    await bench.broker.stop()


async def test_records_are_settled_one_by_one_by_those_who_hold_them(bench: Bench) -> None:
    await bench.produce(b"a", b"b", b"c")
    assert await bench.fetch(ANN, most=2) == [LeasedRun(0, 1, 1)]
    assert await bench.fetch(BOB) == [LeasedRun(2, 2, 1)]
    assert isinstance(await bench.say(BOB, 0, 0, Verdict.ACCEPT), NotLeased)
    assert await bench.say(BOB, 2, 2, Verdict.ACCEPT) is None
    assert await bench.say(ANN, 1, 1, Verdict.ACCEPT) is None
    progress = bench.subscriptions.progress(NAME)[bench.partition].progress
    assert (progress.floor, progress.settled_above) == (0, 2)
    assert await bench.say(ANN, 0, 0, Verdict.REJECT) is None
    assert progress.floor == 3


@pytest.mark.parametrize(("count", "deliveries"), [(True, 2), (False, 1)])
async def test_a_released_member_wakes_those_who_wait(bench: Bench, count: bool, deliveries: int) -> None:
    await bench.produce(b"a")
    assert await bench.fetch(ANN) == [LeasedRun(0, 0, 1)]
    waiting = asyncio.ensure_future(bench.fetch(BOB, seconds=30))
    await asyncio.sleep(0)
    bench.subscriptions.release(NAME, ANN, count=count)
    assert await waiting == [LeasedRun(0, 0, deliveries)]


async def test_leases_end_by_themselves_unless_they_are_extended(bench: Bench) -> None:
    await bench.produce(b"a", b"b")
    await bench.fetch(ANN)
    bench.clock.advance(20)
    assert await bench.say(ANN, 0, 0, Verdict.RENEW) is None
    bench.clock.advance(20)
    await bench.subscriptions.tick()
    assert await bench.fetch(BOB) == [LeasedRun(1, 1, 2)]


async def test_a_subscription_that_is_deleted_is_gone(bench: Bench) -> None:
    await bench.subscriptions.delete(NAME)
    assert NAME not in bench.subscriptions and list(bench.subscriptions) == []
    with pytest.raises(UnknownGroup):
        await bench.fetch(ANN)


async def test_the_broker_stops_when_a_fetch_is_about_to_wait(bench: Bench) -> None:
    """Nobody else wakes it any more."""
    waiting = asyncio.ensure_future(bench.fetch(ANN, seconds=3600))
    while not bench.subscriptions._fetching._waiting:
        await asyncio.sleep(0)
    bench.broker.wake_readers()
    async with asyncio.timeout(30):
        assert await waiting == []
