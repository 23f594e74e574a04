"""Queues on a storage that fails for a while."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from posthouse.broker.queues import log_queue
from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageFull
from tests.broker.queues.lazy_rig import dead_letter_queue, get, lazy, until
from tests.broker.queues.rig import SESSION, Taker, settle_turns


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again soon."""
    monkeypatch.setattr(log_queue, "RETRY_SECONDS", 0.05)


@pytest.mark.usefixtures("soon")
async def test_what_could_not_be_reserved_is_handed_out_later() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"a")
        storage.is_full = True
        taker = Taker()
        queue.subscribe(taker)
        await asyncio.sleep(0.1)
        assert taker.taken == []
        storage.is_full = False
        await taker.has(1)


@pytest.mark.usefixtures("soon")
async def test_the_log_names_the_queue_that_waits_for_storage(caplog: pytest.LogCaptureFixture) -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue("mails")
        await rig.publish(b"a", key=b"mails")
        storage.is_full = True
        taker = Taker()
        queue.subscribe(taker)
        await until(lambda: 'queue "mails" (vhost "/"): paused, waiting for storage: ' in caplog.text)
        storage.is_full = False
        await taker.has(1)


async def test_nothing_spins_while_storage_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue(max_priority=1)
        await rig.publish(b"urgent", priority=1)
        await rig.publish(b"other")
        started: list[object] = []
        start = rig.namespace.background.start

        def counted(work: Coroutine[Any, Any, None], subject: object) -> asyncio.Task[None]:
            started.append(work)
            return start(work, subject)

        monkeypatch.setattr(rig.namespace.background, "start", counted)
        storage.gate = asyncio.Event()
        taker = Taker()
        queue.subscribe(taker)
        await settle_turns(500)
        assert len(started) < 10
        storage.gate.set()
        await taker.has(2)


@pytest.mark.usefixtures("soon")
async def test_getting_says_that_storage_is_full() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"a")
        storage.is_full = True
        with pytest.raises(StorageFull):
            await get(queue)
        storage.is_full = False
        assert (await get(queue)).value == b"a"


@pytest.mark.usefixtures("soon")
async def test_a_queue_that_is_deleted_while_one_is_got() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(b"a")
        storage.read_gate = asyncio.Event()
        getting = asyncio.create_task(queue.get())
        await settle_turns()
        await rig.namespace.delete_queue("q", SESSION)
        storage.read_gate.set()
        async with asyncio.timeout(30):
            assert await getting is None
            assert await queue.get() is None


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("cause", ["rejected", "expired", "too long", "delivered too often"])
async def test_dead_letters_wait_for_storage(cause: str) -> None:
    clock = ManualClock()
    async with lazy(clock) as (rig, storage):
        options: dict[str, Any] = {
            "rejected": {},
            "expired": {"message_ttl_ms": 20},
            "too long": {"max_length": 1},
            "delivered too often": {"delivery_limit": 0},
        }[cause]
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead", **options)
        await rig.publish(b"a")
        if cause in ("rejected", "delivered too often"):
            message = await get(queue)
            storage.is_full = True
            if cause == "rejected":
                queue.reject([message])
            else:
                queue.release([message])
        elif cause == "expired":
            storage.is_full = True
            clock.advance(1)
            queue.dispatcher.expiry.plan()
        else:
            await get(queue)
            storage.turns = 20
            publishing = asyncio.create_task(rig.publish(b"b", b"c"))
            while not publishing.done():
                await asyncio.sleep(0)
            storage.is_full = True
        await asyncio.sleep(0.2)
        assert storage.commits < 60, "it is not tried again and again"
        assert dead.message_count == 0
        storage.is_full = False
        if cause == "rejected":  # its consumer, or another, gets it again and rejects it again
            await until(lambda: queue.message_count == 1)
            queue.reject([await get(queue)])
        else:
            clock.advance(2)
        await until(lambda: dead.message_count == 1)
        await settle_turns()
        assert dead.message_count == 1
        left = {"too long": 1}.get(cause, 0)
        await until(lambda: queue.message_count == left)


@pytest.mark.usefixtures("soon")
async def test_nothing_spins_when_storage_is_fenced() -> None:
    async with lazy() as (rig, storage):
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead", max_length=1)
        await rig.publish(b"a")
        queue.lanes[0].arrived([])
        storage.turns = 5
        publishing = asyncio.create_task(rig.publish(b"b", b"c"))
        while not publishing.done():
            await asyncio.sleep(0)
        storage.is_fenced = True
        reads = storage.reads
        await asyncio.sleep(0.2)
        assert storage.reads - reads < 50
        storage.is_fenced = False
        await until(lambda: dead.message_count == 2)
