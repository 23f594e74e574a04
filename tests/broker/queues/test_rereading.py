"""Messages whose bodies were let go: what it takes to read them again."""

import asyncio

from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.rereading import Rereading
from posthouse.model.clock import SystemClock
from posthouse.storage.operations import Trim
from tests.broker.queues.lazy_storage import LazyStorage
from tests.broker.queues.rig import Rig, Taker, running

BATCHES = 5
IN_EACH = 100
VALUES = [b"%d" % number for number in range(BATCHES * IN_EACH)]


async def forgotten(rig: Rig) -> tuple[Queue, list[Message]]:
    """All messages of a queue, leased, and without their bodies."""
    queue = await rig.queue()
    for first in range(0, len(VALUES), IN_EACH):
        await rig.publish(*VALUES[first : first + IN_EACH])
    taker = Taker()
    queue.subscribe(taker)
    await taker.has(len(VALUES))
    queue.unsubscribe(taker)
    for message in taker.taken:
        message.value = None
    return queue, taker.taken


async def test_each_batch_is_read_once() -> None:
    storage = LazyStorage(SystemClock())
    async with running(storage=storage) as rig:
        _, messages = await forgotten(rig)
        before = storage.reads
        rereading = Rereading(storage)
        assert all([await rereading.reload(message) for message in messages])
        assert [message.value for message in messages] == VALUES
        assert storage.reads - before == BATCHES


async def test_those_in_between_may_be_missing() -> None:
    storage = LazyStorage(SystemClock())
    async with running(storage=storage) as rig:
        _, messages = await forgotten(rig)
        before = storage.reads
        rereading = Rereading(storage)
        some = messages[3::7]
        assert all([await rereading.reload(message) for message in some])
        assert [message.value for message in some] == VALUES[3::7]
        assert storage.reads - before == BATCHES


async def test_any_order_will_do() -> None:
    async with running() as rig:
        _, messages = await forgotten(rig)
        rereading = Rereading(rig.storage)
        assert all([await rereading.reload(message) for message in reversed(messages)])
        assert [message.value for message in messages] == VALUES


async def test_others_have_their_turn_between_batches() -> None:
    async with running() as rig:  # in memory, where no read has to be waited for
        _, messages = await forgotten(rig)
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(turn)

        turn()
        rereading = Rereading(rig.storage)
        for message in messages:
            await rereading.reload(message)
        assert turns >= BATCHES


async def test_what_is_not_there_any_more_is_told() -> None:
    async with running() as rig:
        _, messages = await forgotten(rig)
        await rig.storage.commit([Trim(messages[0].source, messages[IN_EACH].offset)])
        rereading = Rereading(rig.storage)
        found = [await rereading.reload(message) for message in messages]
        assert found == [False] * IN_EACH + [True] * (len(messages) - IN_EACH)


async def test_they_are_handed_out_again_with_few_reads() -> None:
    storage = LazyStorage(SystemClock())
    async with running(storage=storage) as rig:
        queue, messages = await forgotten(rig)
        queue.release(messages)
        before = storage.reads
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(len(VALUES))
        assert taker.values == VALUES
        assert storage.reads - before <= 2 * BATCHES
