"""What of a queue is stored when it is declared, used and deleted, and what is left when that fails."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.queues.dead_letters import DeathReason
from posthouse.broker.queues.internal_topics import queue_of
from posthouse.model.clock import SystemClock
from posthouse.model.errors import PosthouseError, StorageFull, Unavailable
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Operation, Put
from posthouse.storage.outcomes import Outcome
from posthouse.storage.spaces import Space
from tests.broker.queues.lazy_rig import until
from tests.broker.queues.rig import PLAIN, SESSION, Rig, Taker, running, settle_turns, values_of


class Watched(MemoryStorage):
    """Knows what was put, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.puts: list[Put] = []
        self.removals: list[Sequence[TopicId]] = []
        self.may_remove = asyncio.Event()
        self.may_remove.set()
        self.on_create: PosthouseError | None = None
        self.on_commit: PosthouseError | None = None
        self.on_delete: PosthouseError | None = None

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        if self.on_create is not None:
            raise self.on_create
        await super().create_topics(topics, state)

    async def delete_topics(self, topics: Sequence[TopicId]) -> None:
        await self.may_remove.wait()
        if self.on_delete is not None:
            raise self.on_delete
        self.removals.append(topics)
        await super().delete_topics(topics)

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        if self.on_commit is not None:
            raise self.on_commit
        self.puts += [operation for operation in operations if isinstance(operation, Put)]
        return super().commit(operations)

    def of(self, space: Space) -> list[Put]:
        return [put for put in self.puts if put.space is space]

    @property
    def queue_logs(self) -> list[Topic]:
        return [topic for topic in self.topics.values() if queue_of(topic) is not None]


async def use(rig: Rig) -> None:
    queue = rig.found("q")
    taker = Taker()
    queue.subscribe(taker)
    await rig.publish(b"a", b"b")
    await taker.has(2)
    queue.ack(taker.taken)
    queue.unsubscribe(taker)


@pytest.mark.parametrize("options", [{"durable": False}, {"exclusive": True}])
async def test_nothing_of_a_transient_queue(options: Any) -> None:
    storage = Watched()
    async with running(storage=storage) as rig:
        await rig.queue(**options)
        await use(rig)
        await rig.namespace.delete_queue("q", SESSION)
        await settle_turns()
        assert not storage.queue_logs
    assert not storage.of(Space.QUEUES)
    assert not storage.of(Space.QUEUE_PROGRESS)


async def test_a_transient_queue_gives_its_messages_once() -> None:
    async with running(storage=Watched()) as rig:
        queue = await rig.queue(durable=False)
        for number in range(30_000):  # more than are reserved at once
            wave = rig.broker.publishing.wave
            rig.namespace.publish(rig.namespace.router.default, b"q", b"%d" % number, PLAIN, wave)
        taker = Taker()
        queue.subscribe(taker)
        await taker.has(30_000)
        queue.ack(taker.taken)
        assert taker.values == [b"%d" % number for number in range(30_000)]
        assert queue.message_count == queue.leased_count == 0


async def test_rejecting_in_a_transient_queue_without_a_place_for_dead_letters() -> None:
    async with running(storage=Watched()) as rig:
        queue = await rig.queue(durable=False, dead_letter_exchange="nowhere", max_length=10)
        await rig.publish(b"a")
        message = await queue.get()
        assert message is not None
        await queue.dispatcher.settlement.dead_letter([message], DeathReason.REJECTED)
        assert queue.message_count == queue.leased_count == queue.leased_bytes == 0


async def test_a_delete_does_not_wait_for_files() -> None:
    storage = Watched()
    async with running(storage=storage) as rig:
        storage.may_remove.clear()
        for name in "abc":
            await rig.queue(name)
        for name in "abc":
            await rig.namespace.delete_queue(name, SESSION)
        assert not rig.namespace.queues
        assert len(storage.queue_logs) == 3
        again = await rig.queue("a")
        storage.may_remove.set()
        await settle_turns()
        assert storage.queue_logs == [again.log]
        assert len(storage.removals) < 3, "those that wait go together"


async def test_logs_that_could_not_be_removed_go_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    storage = Watched()
    async with running(storage=storage) as rig:
        await rig.queue("a")
        await rig.queue("b")
        storage.on_delete = Unavailable("not now")
        await rig.namespace.delete_queue("a", SESSION)
        await settle_turns()
        assert len(storage.queue_logs) == 2
        storage.on_delete = None
        await rig.namespace.delete_queue("b", SESSION)
        await settle_turns()
        assert not storage.queue_logs
    assert "not now" in caplog.text


async def test_a_log_that_cannot_be_made() -> None:
    storage = Watched()
    async with running(storage=storage) as rig:
        storage.on_create = Unavailable("not now")
        with pytest.raises(Unavailable):
            await rig.queue()
        storage.on_create = None
        assert storage.of(Space.QUEUES)[-1].value is None
        assert not rig.namespace.queues
        await rig.queue()


async def test_a_definition_that_cannot_be_stored() -> None:
    storage = Watched()
    async with running(storage=storage) as rig:
        storage.on_commit = Unavailable("not now")
        with pytest.raises(Unavailable):
            await rig.queue()
        storage.on_commit = None
        await settle_turns()
        assert not rig.namespace.queues
        assert not storage.queue_logs
        await rig.queue()


async def test_a_definition_without_a_log_is_forgotten(tmp_path: Path) -> None:
    """The broker failed after the one and before the other."""
    async with running(tmp_path) as rig:
        queue = await rig.queue()
        await rig.queue("other")
        await rig.publish(b"kept", key=b"other")
        await rig.storage.delete_topics([queue.log.id])
    async with running(tmp_path) as rig:
        assert list(rig.namespace.queues) == ["other"]
        assert (await rig.queue()).message_count == 0
    async with running(tmp_path) as rig:
        assert sorted(rig.namespace.queues) == ["other", "q"]
        assert await values_of(rig.found("other")) == [b"kept"]


async def test_a_log_that_could_not_be_removed_is_tried_again() -> None:
    storage = Watched()
    async with running(storage=storage) as rig:
        rig.broker.namespaces._retry_seconds = 0.01
        await rig.queue()
        storage.on_delete = StorageFull("no space")
        await rig.namespace.delete_queue("q", SESSION)
        await until(lambda: rig.broker.namespaces._removing is None)
        assert storage.queue_logs
        storage.on_delete = None
        await until(lambda: not storage.queue_logs)


async def test_a_log_that_comes_when_others_have_just_been_removed_goes_too() -> None:
    storage = Watched()
    async with running(storage=storage) as rig:
        namespaces = rig.broker.namespaces
        logs = [(await rig.queue(name)).log for name in ("a", "b")]
        remove = namespaces._remove_leftovers

        async def removed_with_one_more() -> None:
            await remove()
            if len(storage.removals) == 1:
                namespaces.remove_log(logs[1])  # the task has ended its work, and nobody was told yet

        namespaces._remove_leftovers = removed_with_one_more  # type: ignore[method-assign]
        namespaces.remove_log(logs[0])
        await until(lambda: not storage.queue_logs)
