"""Work goes on without its caller, and its failure is then no report of asyncio."""

import asyncio
import gc
import logging
from typing import Any

import pytest

from posthouse.broker.undisturbed import undisturbed
from posthouse.model.errors import StorageFenced


async def left_alone(error: Exception) -> list[dict[str, Any]]:
    """What asyncio reports of work that fails after its caller was cancelled."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))
    may_fail = asyncio.Event()

    async def work() -> None:
        await may_fail.wait()
        raise error

    working = asyncio.create_task(work())
    caller = asyncio.create_task(undisturbed(working))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled() and not working.done()
    may_fail.set()
    await asyncio.wait([working])
    await asyncio.sleep(0)
    del working, caller
    gc.collect()
    return reports


async def test_a_caller_gets_result_and_error() -> None:
    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise StorageFenced("another broker has taken over")

    assert await undisturbed(asyncio.create_task(answer())) == 42
    with pytest.raises(StorageFenced):
        await undisturbed(asyncio.create_task(fail()))


async def test_a_failure_without_a_caller_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert await left_alone(StorageFenced("another broker has taken over")) == []
    assert not caplog.records


async def test_a_mistake_of_the_broker_itself_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert await left_alone(ZeroDivisionError()) == []
    assert "failed" in caplog.text and "ZeroDivisionError" in caplog.text
