"""Many large reads are spread over turns of the event loop; short ones do not wait."""

import asyncio
from itertools import pairwise

from posthouse.broker.reading_turns import ReadingTurns, reaches_end
from posthouse.records.builder import BatchBuilder
from posthouse.storage.bounds import Bounds, Slice

LARGE = 4 * 1024 * 1024


async def test_a_turn_is_spent_by_a_large_read_and_the_next_one_is_not() -> None:
    turns = ReadingTurns()
    assert not turns.is_spent
    turns.spend(LARGE)
    assert turns.is_spent
    await asyncio.sleep(0)
    assert not turns.is_spent


async def test_short_reads_spend_it_together() -> None:
    turns = ReadingTurns()
    turns.spend(1024 * 1024 - 1)
    assert not turns.is_spent
    turns.spend(1)
    assert turns.is_spent


async def test_large_reads_come_one_by_one_and_others_have_turns_in_between() -> None:
    turns = ReadingTurns()
    order: list[str] = []

    async def read(name: str) -> None:
        await turns.next()
        order.append(name)
        turns.spend(LARGE)

    async def others() -> None:
        while True:
            order.append("other")
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    await asyncio.gather(*(read(f"read {number}") for number in range(5)))
    other.cancel()
    reads = [position for position, name in enumerate(order) if name != "other"]
    assert [order[position] for position in reads] == [f"read {number}" for number in range(5)]
    assert all(later - earlier > 1 for earlier, later in pairwise(reads))


async def test_whoever_gave_up_in_line_keeps_nobody_waiting() -> None:
    turns = ReadingTurns()
    turns.spend(LARGE)
    given_up, patient = asyncio.create_task(turns.next()), asyncio.create_task(turns.next())
    asyncio.get_running_loop().call_soon(given_up.cancel)
    await asyncio.wait_for(patient, 30)
    assert given_up.cancelled()
    await asyncio.sleep(0)
    assert not turns.is_spent


def test_what_reaches_the_end() -> None:
    builder = BatchBuilder()
    for _ in range(3):
        builder.add(None, b"value", (), 1)
    batch = builder.build()
    assert reaches_end(Slice(batch, Bounds(0, 3, 3)), 0, stable_only=False)
    assert not reaches_end(Slice(batch, Bounds(0, 4, 3)), 0, stable_only=False)
    assert reaches_end(Slice(batch, Bounds(0, 4, 3)), 0, stable_only=True)
    assert not reaches_end(Slice(b"", Bounds(0, 4, 4)), 3, stable_only=False)
    assert reaches_end(Slice(b"", Bounds(0, 4, 4)), 4, stable_only=False)
