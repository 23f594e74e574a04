"""A change of a transaction goes on when its client has disconnected, and its failure is logged once."""

import asyncio
import gc
from typing import Any

import pytest

from posthouse.model.errors import Unavailable
from tests.broker.transactions.producers import Bench


async def _disconnected(bench: Bench, failure: Exception) -> list[dict[str, Any]]:
    """What the event loop complains of."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    transitions = bench.broker.transactions.transitions
    may_fail = asyncio.Event()

    async def step() -> None:
        await may_fail.wait()
        raise failure

    waiting = asyncio.create_task(transitions.undisturbed(step()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_fail.set()
    while transitions._under_way:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.collect()
    return complaints


async def test_storage_that_is_away_is_a_warning(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    assert await _disconnected(bench, Unavailable("the database is away")) == []
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "the database is away" in record.getMessage()


async def test_an_error_of_the_broker_itself_has_its_traceback(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    assert await _disconnected(bench, ZeroDivisionError()) == []
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None and record.exc_info[0] is ZeroDivisionError
