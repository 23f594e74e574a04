"""Share groups and records of transactions."""

import asyncio

import pytest

from posthouse.testing import AsyncBroker
from tests.protocols.kafka.handlers.share_wire import Member, beat, joined, lag
from tests.protocols.kafka.transactional_wire import TransactionalWire
from tests.protocols.kafka.wire import Wire, batch


async def written(wire: Wire, *, commit: bool, values: tuple[bytes, ...]) -> None:
    producer = TransactionalWire(wire, newer=True)
    assert await producer.init() == 0
    assert await producer.write(*values) >= 0
    assert await producer.end(commit=commit) == 0


async def all_of(member: Member) -> tuple[list[bytes | None], list[tuple[int, int, int]]]:
    got = await member.take()
    assert got is not None
    return got.values, got.runs


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
async def test_aborted_records(wire: Wire, isolation: str) -> None:
    member = await joined(wire, isolation_level=isolation)
    await wire.produce(member.topic, batch(b"plain"))
    await written(wire, commit=False, values=(b"aborted",))
    await written(wire, commit=True, values=(b"committed",))
    values, runs = await all_of(member)
    if isolation == "read_committed":
        assert (values, runs) == ([b"plain", b"committed"], [(0, 0, 1), (3, 3, 1)])
    else:
        assert (values, runs) == ([b"plain", b"aborted", b"committed"], [(0, 1, 1), (3, 3, 1)])
    said = [(first, last, [1]) for first, last, _ in runs]
    assert await member.acknowledge({0: said}) == {0: 0}
    assert await member.take() is None
    assert await lag(wire) == {0: (5, 0)}  # the markers are passed over


async def test_open_transactions_are_waited_for(wire: Wire, broker: AsyncBroker) -> None:
    member = await joined(wire, isolation_level="read_committed")
    async with Wire(broker.kafka) as second:
        producer = TransactionalWire(second, newer=True)
        await producer.init()
        await producer.write(b"open")
        await second.produce(member.topic, batch(b"behind"))
        assert await member.take() is None
        waiting = asyncio.ensure_future(member.take(max_wait_ms=10_000))
        await asyncio.sleep(0.05)
        await producer.end()
        got = await waiting
    assert got is not None
    assert got.values == [b"open", b"behind"]


async def test_open_transactions_are_read_where_that_is_wanted(wire: Wire) -> None:
    member = await joined(wire)
    producer = TransactionalWire(wire, newer=True)
    await producer.init()
    await producer.write(b"open")
    assert (await all_of(member))[0] == [b"open"]
    assert (await beat(wire, "m", -1)).error_code == 0
