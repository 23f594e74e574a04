"""Transactions time out by the clock that does not jump."""

import pytest

from posthouse.model.errors import InvalidTransaction, ProducerFenced
from tests.broker.transactions.producers import TIMEOUT_MS, Bench, Client

_DAY_MS = 24 * 3600 * 1000


async def test_a_clock_that_jumps_ahead_aborts_nothing(bench: Bench, client: Client) -> None:
    await client.write(b"a")
    bench.clock.jump(_DAY_MS)
    await bench.broker.transactions.abort_expired()
    await client.end(commit=True)
    assert await bench.committed() == [b"a"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_clock_that_jumps_back_keeps_nothing_open(
    bench: Bench, client: Client, restarted: bool
) -> None:
    await client.write(b"a")
    bench.clock.jump(-_DAY_MS)
    if restarted:
        await bench.crash()
    await bench.broker.transactions.abort_expired()
    bench.clock.advance(TIMEOUT_MS / 1000)
    await bench.broker.transactions.abort_expired()
    assert bench.stable() == 2
    with pytest.raises(InvalidTransaction if client.epoch_per_transaction else ProducerFenced):
        await client.end(commit=True)
