"""Calls that are joined: the work is done after each of them, and not more often than needed."""

import asyncio

import pytest

from posthouse.model.errors import StorageClosed, Unavailable
from posthouse.storage.shared.joined_calls import JoinedCalls


class Work:
    def __init__(self) -> None:
        self.begun = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None

    async def __call__(self) -> None:
        self.begun += 1
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_of_one_turn_are_one() -> None:
    work = Work()
    calls = JoinedCalls(work)
    await asyncio.gather(*(calls.call() for _ in range(10)))
    assert work.begun == 1
    await calls.call()
    assert work.begun == 2


async def test_a_call_during_the_work_waits_for_the_next() -> None:
    work = Work()
    work.gate.clear()
    calls = JoinedCalls(work)
    first = asyncio.create_task(calls.call())
    await turn()
    later = [asyncio.create_task(calls.call()) for _ in range(3)]
    await turn()
    assert work.begun == 1
    work.gate.set()
    await first
    await asyncio.gather(*later)
    assert work.begun == 2


async def test_a_failure_is_told_to_all_that_waited_for_it_and_to_no_other() -> None:
    work = Work()
    work.failure = Unavailable("away")
    calls = JoinedCalls(work)
    told = await asyncio.gather(*(calls.call() for _ in range(3)), return_exceptions=True)
    assert told == [work.failure] * 3
    work.failure = None
    await calls.call()


async def test_a_caller_that_is_cancelled_leaves_the_work_to_the_others() -> None:
    work = Work()
    work.gate.clear()
    calls = JoinedCalls(work)
    one, other = asyncio.create_task(calls.call()), asyncio.create_task(calls.call())
    await turn()
    one.cancel()
    await turn()
    assert one.cancelled() and not other.done()
    work.gate.set()
    await other


async def test_work_begins_no_sooner_than_its_pause_allows() -> None:
    loop = asyncio.get_running_loop()
    calls = JoinedCalls(Work(), pause_seconds=0.05)
    began = loop.time()
    for _ in range(3):
        await calls.call()
    assert loop.time() - began >= 0.1


async def test_callers_learn_that_it_was_closed() -> None:
    work = Work()
    work.gate.clear()
    calls = JoinedCalls(work)
    running = asyncio.create_task(calls.call())
    await turn()
    waiting = asyncio.create_task(calls.call())
    await turn()
    await calls.close()
    for each in (running, waiting):
        with pytest.raises(StorageClosed):
            await each
