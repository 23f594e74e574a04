"""Readers that hold no leases: tokens that one of them has reserved do not stop those behind it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.broker.funnel.group_limiters import GroupLimiters
from posthouse.broker.funnel.limits import DeliveryLimits
from posthouse.model.clock import ManualClock
from posthouse.model.ids import GroupId

GROUP = GroupId("group")
BURST = 5
DEADLINE = 30.0


class Readers:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.limiters = GroupLimiters(lambda _: DeliveryLimits(rate=10.0 * BURST), self.clock)

    async def take(self, most: int) -> int:
        deadline = self.clock.monotonic() + 3600
        async with self.limiters.reserved(GROUP, self.limiters.ticket(), most, deadline) as reserved:
            reserved.used = reserved.tokens
            return reserved.tokens

    async def wait_behind_others(self) -> "asyncio.Task[int]":
        """No tokens are left for it."""
        waiting = asyncio.create_task(self.take(1))
        limiter = self.limiters.of(GROUP)
        assert limiter is not None
        async with asyncio.timeout(DEADLINE):
            while not limiter._line:
                await asyncio.sleep(0)
        return waiting


@pytest.fixture
async def readers() -> AsyncIterator[Readers]:
    readers = Readers()
    yield readers
    readers.limiters.forget(GROUP)


@pytest.mark.parametrize("most", [1, BURST], ids=["some are left", "few are left"])
async def test_a_reader_that_keeps_reserved_tokens_lets_others_have_the_rest(
    readers: Readers, most: int
) -> None:
    early = readers.limiters.ticket()
    assert await readers.take(BURST) == BURST
    waiting = await readers.wait_behind_others()
    readers.clock.advance(0.1)
    async with readers.limiters.reserved(GROUP, early, most, 0.0) as reserved:
        assert reserved.tokens
        async with asyncio.timeout(DEADLINE):
            assert await waiting == 1


async def test_a_reader_that_keeps_all_tokens_lets_others_have_the_next(readers: Readers) -> None:
    early = readers.limiters.ticket()
    assert await readers.take(BURST) == BURST
    waiting = await readers.wait_behind_others()
    readers.clock.advance(0.02)  # one token
    async with readers.limiters.reserved(GROUP, early, BURST, 0.0) as reserved:
        assert reserved.tokens == 1
        readers.clock.advance(0.1)
        async with asyncio.timeout(DEADLINE):
            assert await waiting == 1
