"""Throttles of one connection, and the time that they are counted as."""

import asyncio

import pytest

from posthouse.protocols.noop import noop
from posthouse.protocols.throttle_timer import ThrottleTimer


class Counted:
    """The waits that ended, in seconds."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)


async def until_off(timer: ThrottleTimer) -> None:
    async with asyncio.timeout(30):
        while timer.is_on:
            await asyncio.sleep(0.01)


async def test_the_longest_of_two_debts_counts() -> None:
    loop = asyncio.get_running_loop()
    ends: list[float] = []
    pause = ThrottleTimer(loop, lambda: ends.append(loop.time()))
    begun = loop.time()
    pause.extend(0.2)
    pause.extend(0.01)
    while not ends:
        await asyncio.sleep(0.01)
    assert ends[0] - begun >= 0.19
    assert not pause.is_on


async def test_debts_that_overlap_are_one_wait() -> None:
    counted, timer = Counted(), ThrottleTimer(asyncio.get_running_loop(), noop)
    for seconds in (0.1, 0.05, 0.2):
        timer.extend(seconds, counted)
    assert counted.waits == [], "it is counted when it is over"
    await until_off(timer)
    assert counted.waits == [pytest.approx(0.2, abs=0.01)]
    timer.extend(0.01, counted)
    await until_off(timer)
    assert len(counted.waits) == 2


async def test_a_connection_that_is_closed_waits_no_longer() -> None:
    counted, timer = Counted(), ThrottleTimer(asyncio.get_running_loop(), noop)
    timer.extend(1000, counted)
    timer.close()
    timer.close()
    assert len(counted.waits) == 1 and counted.waits[0] < 100


async def test_time_of_other_throttles_is_not_counted() -> None:
    counted, timer = Counted(), ThrottleTimer(asyncio.get_running_loop(), noop)
    timer.extend(1000)
    timer.extend(0.01, counted)
    await asyncio.sleep(0.05)
    timer.extend(0.01, counted)
    timer.extend(0.01, counted)
    await asyncio.sleep(0.05)
    timer.close()
    assert counted.waits == [pytest.approx(0.01), pytest.approx(0.01, abs=0.005)]


async def test_nothing_to_pay_is_no_wait() -> None:
    counted, timer = Counted(), ThrottleTimer(asyncio.get_running_loop(), noop)
    timer.extend(0, counted)
    timer.close()
    assert (counted.waits, timer.is_on) == ([], False)


async def test_who_is_told_that_it_begins() -> None:
    begun: list[bool] = []
    pause = ThrottleTimer(asyncio.get_running_loop(), noop, lambda: begun.append(pause.is_on))
    pause.extend(0.0)
    assert begun == []
    pause.extend(5.0)
    pause.extend(1.0)
    assert begun == [True]
    pause.close()
    pause.extend(60.0)
    assert begun == [True]
    pause.close()
