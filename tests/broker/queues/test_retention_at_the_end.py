"""Retention that looks while a broker gives up its queues, or stops: unsettled messages stay."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from posthouse.broker.broker import Broker
from posthouse.broker.queues.queue import Queue
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import scope_of_namespace
from tests.broker.members import pair
from tests.broker.queues.rig import Rig, running

SCOPE = scope_of_namespace("/")


async def _published(rig: Rig) -> tuple[Queue, PartitionId]:
    """A queue with a message, and the partition that has it: nothing but the queue keeps it there."""
    queue = await rig.queue("mails")
    async with asyncio.timeout(30):
        assert await rig.publish(b"one", key=b"mails") == [True]
    [partition] = rig.broker.topic("mails").partition_ids()
    return queue, partition


async def _looks_while(broker: Broker, queue: Queue, end: Callable[[], Awaitable[object]]) -> None:
    """Retention has begun when the queue is stopped, and goes on before that has ended."""
    retention = broker.namespaces.retention
    has_begun, may_go_on = asyncio.Event(), asyncio.Event()
    refer = retention._refer_committed

    async def wait() -> None:
        has_begun.set()
        await may_go_on.wait()
        await refer()

    retention._refer_committed = wait
    looking = asyncio.create_task(retention.reclaim())
    await has_begun.wait()
    ending = asyncio.ensure_future(end())
    while not queue.is_stopped:
        await asyncio.sleep(0)
    may_go_on.set()
    await looking
    await ending


async def _looks_when_stopped(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, end: Callable[[], Awaitable[object]]
) -> None:
    """Retention begins when the queues are stopped, and ends before they are unloaded."""
    writer = broker.namespaces.progress_writer
    is_stopped, may_go_on = asyncio.Event(), asyncio.Event()
    leave = writer.leave

    async def wait(lanes: object) -> None:
        is_stopped.set()
        await may_go_on.wait()
        await leave(lanes)  # type: ignore[arg-type]

    monkeypatch.setattr(writer, "leave", wait)
    ending = asyncio.ensure_future(end())
    await is_stopped.wait()
    await broker.namespaces.retention.reclaim()
    may_go_on.set()
    await ending


async def test_a_look_that_began_before_the_scope_is_given_up() -> None:
    async with asyncio.timeout(60), pair() as both:
        broker = both.coordinator
        queue, partition = await _published(Rig(broker))
        await _looks_while(broker, queue, lambda: broker.release_scope(SCOPE))
        assert both.storage.bounds(partition).start == 0
        await broker.take_scope(SCOPE)
        assert Rig(broker).found("mails").message_count == 1
        await broker.namespaces.retention.reclaim()
        assert both.storage.bounds(partition).start == 0


async def test_a_look_that_begins_while_the_scope_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(60), pair() as both:
        broker = both.coordinator
        _, partition = await _published(Rig(broker))
        await _looks_when_stopped(broker, monkeypatch, lambda: broker.release_scope(SCOPE))
        assert both.storage.bounds(partition).start == 0
        await broker.take_scope(SCOPE)


async def test_a_look_that_goes_on_when_the_scope_could_not_be_given_up_in_good_order() -> None:
    """The queues are unloaded under it."""
    async with asyncio.timeout(60), pair() as both:
        broker = both.coordinator
        _, partition = await _published(Rig(broker))
        retention = broker.namespaces.retention
        has_begun, may_go_on = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            has_begun.set()
            await may_go_on.wait()

        retention._refer_committed = wait
        looking = asyncio.create_task(retention.reclaim())
        await has_begun.wait()
        broker.namespaces.unload(SCOPE)
        broker.namespaces.sources.serve(SCOPE)  # it is served again, and not all of it is there
        may_go_on.set()
        await looking
        assert both.storage.bounds(partition).start == 0


@pytest.mark.parametrize("begins", ["before", "meanwhile"])
async def test_a_broker_that_is_alone_stops(begins: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(60), running() as rig:
        queue, partition = await _published(rig)
        end = rig.broker.namespaces.close_all
        if begins == "before":
            await _looks_while(rig.broker, queue, end)
        else:
            monkeypatch.setattr(
                rig.broker.namespaces, "progress_writer", rig.broker.namespaces.progress_writer
            )
            await _looks_when_stopped(rig.broker, monkeypatch, end)
        assert rig.broker.namespaces.storage.bounds(partition).start == 0
