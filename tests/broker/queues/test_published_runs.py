"""Messages that consumers wait for are handed over when they are durable, without reading them."""

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.queues import loader, log_queue
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.reading import LaneReader
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import StorageFull
from posthouse.records.references import Reference
from posthouse.storage.bounds import Slice
from tests.broker.queues.lazy_rig import lazy
from tests.broker.queues.rig import Rig, Taker, running, settle_turns

VALUES = [b"%d" % number for number in range(10)]


async def waiting(rig: Rig, credit: int = 1000, **options: Any) -> tuple[Queue, Taker]:
    queue, taker = await rig.queue(**options), Taker(credit)
    queue.subscribe(taker)
    await settle_turns()
    return queue, taker


async def test_a_message_that_a_consumer_waits_for_is_not_read() -> None:
    async with lazy() as (rig, storage):
        queue, taker = await waiting(rig)
        for value in VALUES:
            await rig.publish(value)
        await taker.has(len(VALUES))
        assert (taker.values, storage.reads) == (VALUES, 0)
        queue.ack(taker.taken)
        assert (queue.message_count, queue.leased_count) == (0, 0)


async def test_without_credit_messages_are_not_kept_in_memory() -> None:
    async with lazy() as (rig, storage):
        queue, taker = await waiting(rig, credit=0)
        await rig.publish(*VALUES)
        [lane] = queue.lanes
        assert not lane.window
        taker.raise_credit(queue, 1000)
        await taker.has(len(VALUES))
        assert taker.values == VALUES
        assert storage.reads > 0


async def test_a_wave_that_is_larger_than_the_window_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "WINDOW", len(VALUES) - 1)
    async with lazy() as (rig, storage):
        _, taker = await waiting(rig)
        await rig.publish(*VALUES)
        await taker.has(len(VALUES))
        assert taker.values == VALUES
        assert storage.reads > 0


async def test_the_reader_goes_on_behind_messages_that_were_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[int] = []
    load = LaneReader.load

    def noted(reader: LaneReader, position: int, run: Reference) -> Coroutine[Any, Any, list[Message]]:
        loaded.append(position)
        return load(reader, position, run)

    monkeypatch.setattr(LaneReader, "load", noted)
    async with lazy() as (rig, _):
        queue, taker = await waiting(rig, credit=5)
        await rig.publish(*VALUES[:5])
        await taker.has(5)
        await rig.publish(*VALUES[5:])
        taker.raise_credit(queue, 1000)
        await taker.has(len(VALUES))
        assert taker.values == VALUES
        assert loaded == [5]


async def test_no_message_overtakes_those_that_are_being_read() -> None:
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(*VALUES[:5])
        storage.read_gate = asyncio.Event()
        taker = Taker()
        queue.subscribe(taker)
        await settle_turns()
        await rig.publish(*VALUES[5:])
        storage.read_gate.set()
        await taker.has(len(VALUES))
        assert taker.values == VALUES


async def test_no_message_overtakes_those_that_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queue, "RETRY_SECONDS", 0.01)
    async with lazy() as (rig, storage):
        queue = await rig.queue()
        await rig.publish(*VALUES[:5])
        with monkeypatch.context() as failing:
            failing.setattr(storage, "read", _unavailable)
            taker = Taker()
            queue.subscribe(taker)
            await settle_turns()
            await rig.publish(*VALUES[5:])
            await settle_turns()
            assert taker.values == []
        await taker.has(len(VALUES))
        assert taker.values == VALUES


async def _unavailable(*arguments: object) -> Slice:
    raise StorageFull("for a moment")


TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "plain": (1, {}),
    "log append time": (1, {"message.timestamp.type": "LogAppendTime"}),
    "compressed": (1, {"compression.type": "zstd"}),
    "three partitions": (3, {}),
}


def told(message: Message) -> dict[str, object]:
    """All but whose message it is."""
    return {
        field.name: getattr(message, field.name)
        for field in fields(Message)
        if field.name not in ("queue", "lane")
    }


@pytest.mark.parametrize("topic", TOPICS)
async def test_it_is_the_same_message_that_would_be_read(topic: str, tmp_path: Path) -> None:
    partitions, overrides = TOPICS[topic]
    async with running(tmp_path) as rig:
        await rig.broker.create_topics([NewTopic(name="x", partitions=partitions, overrides=overrides)])
        await rig.exchange("x")
        _, first = await waiting(rig, name="handed over")
        later = await rig.queue("read later")
        for name in ("handed over", "read later"):
            await rig.bind("x", name)
        for number in range(20):
            # One wave with several runs, and batches of several partitions.
            sent = [
                rig.publish(value, key=b"key %d" % (number % 3), exchange="x", expires_in_ms=expires)
                for value, expires in ((b"", None), (b"y" * 500, 60_000), (b"z", 60_000))
            ]
            await asyncio.gather(*sent)
        await first.has(60)
        second = Taker()
        later.subscribe(second)
        await second.has(60)
        assert [told(message) for message in first.taken] == [told(message) for message in second.taken]
