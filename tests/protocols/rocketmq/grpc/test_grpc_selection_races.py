"""Consumers that look at the same messages at the same time."""

import asyncio

from posthouse.broker.filters.filter import EVERYTHING
from posthouse.broker.subscriptions.key_order import KeyOrder
from posthouse.broker.subscriptions.leases import Verdict
from posthouse.protocols.rocketmq.grpc.selection import MessageSelection
from tests.broker.subscriptions.bench import ANN, BOB, Bench


def everything(most: int, order: KeyOrder | None = None) -> MessageSelection:
    return MessageSelection("all", EVERYTHING, lambda: [EVERYTHING], most, order)


async def test_who_was_too_late_for_a_message_gets_the_next() -> None:
    bench = Bench()
    await bench.start()
    waiting = [
        asyncio.ensure_future(bench.fetch(member, most=1, seconds=30, selection=everything(1)))
        for member in (ANN, BOB)
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    await bench.produce(b"0")
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await bench.produce(b"1")
    found = [await each for each in waiting]
    assert sorted(run.first for runs in found for run in runs) == [0, 1]
    await bench.broker.stop()


async def test_who_was_too_late_has_no_messages_of_others() -> None:
    bench = Bench()
    await bench.start()
    order = KeyOrder()
    selection = everything(2, order)
    await bench.produce(b"0", b"1", b"2")
    assert len(await bench.fetch(ANN, most=2, selection=everything(2, order))) == 1
    assert await bench.fetch(BOB, selection=selection) == [] and not selection.messages
    assert await bench.say(ANN, 0, 1, Verdict.ACCEPT) is None
    assert [run.first for run in await bench.fetch(BOB, selection=selection)] == [2]
    assert [offset for _, offset in selection.messages] == [2]
    await bench.broker.stop()
