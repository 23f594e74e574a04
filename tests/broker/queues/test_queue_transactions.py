"""Messages settled in a transaction, which may fail, or end when the queue is gone."""

import asyncio
from typing import Any

import pytest

from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import StorageFull
from posthouse.records.batch import parse_header
from posthouse.storage.operations import Append
from tests.broker.queues.lazy_rig import get, lazy, until
from tests.broker.queues.rig import PLAIN, SESSION, Rig, Taker, running, values_of
from tests.broker.queues.test_queue_interop import batch


async def test_what_a_transaction_settles_frees_its_key_and_its_bytes() -> None:
    async with running() as rig:
        queue = await rig.queue(ordered_by_key=True, max_bytes=10, overflow=OverflowPolicy.REJECT_PUBLISH)
        await rig.publish(b"aaaaa", b"bbbbb")
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(1)
        wave = TransactionWave(rig.broker.publishing)
        queue.ack(taker.taken, wave)
        await wave.commit()
        await taker.has(2)
        assert taker.values == [b"aaaaa", b"bbbbb"]
        assert queue.leased_bytes == 5
        await rig.publish(b"ccccc")
        wave = TransactionWave(rig.broker.publishing)
        queue.ack(taker.taken[1:], wave)
        await wave.commit()
        await taker.has(3)
        queue.ack(taker.taken)
        assert (queue.leased_bytes, queue.ready_bytes) == (0, 0)


async def test_a_transaction_for_a_queue_that_was_deleted() -> None:
    async with running() as rig:
        await rig.exchange("x")
        stays, goes = await rig.queue("stays"), await rig.queue("goes")
        for name in ("stays", "goes"):
            await rig.bind("x", name)
        wave = TransactionWave(rig.broker.publishing)
        rig.namespace.publish(rig.namespace.router.exchange("x"), b"", b"a", PLAIN, wave)
        await rig.namespace.delete_queue("goes", SESSION)
        await wave.commit()
        assert stays.message_count == 1
        assert goes.is_closed


async def test_a_stream_transaction_for_a_queue_that_was_deleted() -> None:
    async with running() as rig:
        queue = await rig.queue("orders")
        await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        referrals = rig.broker.namespaces.sources.refer(
            [(rig.broker.topic("orders"), _append(rig, "orders", (b"k", b"v", [])))]
        )
        assert referrals is not None
        await rig.namespace.delete_queue("orders", SESSION)
        assert referrals.operations() == []
        referrals.durable()
        assert queue.is_closed


def _append(rig: Rig, topic: str, *records: Any) -> Append:
    data = batch(*records)
    return Append(rig.broker.topic(topic).partition(0), data, parse_header(data))


async def test_a_failed_transaction_gives_back_what_it_settled() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"a", b"b", b"c")
        first, second, third = await get(queue), await get(queue), await get(queue)
        await until(lambda: not rig.broker.namespaces.progress_writer._changed)
        storage.is_full = True
        wave = TransactionWave(rig.broker.publishing)
        rig.namespace.publish(rig.namespace.router.default, b"q", b"new", PLAIN, wave)
        queue.ack([first, third], wave)
        with pytest.raises(StorageFull):
            await wave.commit()
        storage.is_full = False
        assert (queue.message_count, queue.leased_count) == (0, 3)
        queue.ack([second])
        queue.release([first, third])
        assert (await get(queue)) is first
        assert (await get(queue)) is third


async def test_a_queue_that_seemed_empty_is_not_when_a_transaction_failed() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        assert queue.lengths == (0, 0)
        await rig.publish(b"a")
        assert queue.lengths == (1, 0)
        message = await get(queue)
        assert queue.lengths == (0, 1)
        await until(lambda: not rig.broker.namespaces.progress_writer._changed)
        storage.is_full = True
        wave = TransactionWave(rig.broker.publishing)
        queue.ack([message], wave)
        committing = wave.commit()
        await asyncio.sleep(0)
        assert queue.lengths == (0, 0), "as long as the commit is under way"
        with pytest.raises(StorageFull):
            await committing
        assert queue.lengths == (0, 1)
        storage.is_full = False
        queue.ack([message])
        assert queue.lengths == (0, 0)


async def test_what_a_failed_transaction_settled_is_not_settled_in_storage_either() -> None:
    """A commit that comes in between may have stored it."""
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"a", b"b")
        first, second = await get(queue), await get(queue)
        wave = TransactionWave(rig.broker.publishing)
        queue.ack([first], wave)
        storage.is_full = True
        committing = wave.commit()
        committing.add_done_callback(lambda done: done.exception())
        progress_writer = rig.broker.namespaces.progress_writer
        queue.ack([second])

        def store_at_once() -> None:
            storage.is_full, storage.after_flush = False, None
            assert progress_writer._timer is not None
            progress_writer._timer.cancel()
            progress_writer._store()

        storage.after_flush = store_at_once
        await asyncio.wait([committing])
        await until(lambda: storage.after_flush is None and not progress_writer._changed and storage.is_idle)
        assert isinstance(committing.exception(), StorageFull)
        async with running(storage=storage.left_behind()) as after:
            assert await values_of(after.found("q")) == [b"a"]
