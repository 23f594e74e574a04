"""What a queue counts, and what its topics count with it."""

from pathlib import Path

import pytest

from posthouse.broker.queues.counters import QueueCounters
from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.routing.definitions import ExchangeKind
from posthouse.model.errors import QueueFull, StorageFull
from tests.broker.queues.lazy_rig import dead_letter_queue, get, until
from tests.broker.queues.rig import Taker, running


def counted(counters: QueueCounters) -> dict[str, int]:
    """Without zeros."""
    return {name: count for name in QueueCounters.__slots__ if (count := getattr(counters, name))}


def last(queue: Queue) -> dict[str, int]:
    return counted(queue.counters)


async def test_messages_that_are_published_delivered_and_acknowledged(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        queue, taker = await rig.queue(), Taker()
        await rig.publish(b"a", b"bb", b"ccc")
        assert last(queue) == {"published": 3}
        queue.subscribe(taker)
        await taker.has(3)
        queue.ack(taker.taken[:2])
        queue.ack(taker.taken[:2])  # again: they are not leased any more
        assert last(queue) == {"published": 3, "delivered": 3, "acked": 2}
        traffic = rig.broker.traffic.of(queue.backing.name)
        assert (traffic.records_in, traffic.records_out, traffic.bytes_out) == (3, 3, 6)
        assert traffic.bytes_in > 6


async def test_acknowledgements_of_a_transaction_count_when_it_is_durable() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"a", b"b")
        failed = TransactionWave(rig.broker.publishing)
        queue.ack([await get(queue)], failed)
        failed.end(StorageFull("full"))
        assert last(queue) == {"published": 2, "got": 1}
        wave = TransactionWave(rig.broker.publishing)
        queue.ack([await get(queue)], wave)
        assert last(queue) == {"published": 2, "got": 2}
        await wave.commit()
        assert last(queue) == {"published": 2, "got": 2, "acked": 1}


async def test_messages_that_come_back_are_redelivered() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"a", b"b")
        queue.release([await get(queue)])
        await get(queue)
        await get(queue)
        assert await queue.get() is None
        assert last(queue) == {"published": 2, "got": 3, "redelivered": 1}


async def test_messages_that_are_polled_count_as_delivered() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"a", b"b")
        assert len(await queue.poll(10, 0, lease_seconds=10)) == 2
        assert last(queue) == {"published": 2, "delivered": 2}


async def test_dead_letters_and_where_they_arrive() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a", b"b")
        queue.reject([await get(queue), await get(queue)])
        await until(lambda: dead.message_count == 2)
        assert last(queue) == {"published": 2, "got": 2, "dead_lettered": 2}
        assert last(dead) == {"published": 2}


async def test_messages_that_expire() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        plain = await rig.queue("plain", message_ttl_ms=1)
        queue = await rig.queue(dead_letter_exchange="dead", message_ttl_ms=1)
        await rig.publish(b"a")
        await rig.publish(b"b", key=b"plain")
        await until(lambda: dead.message_count == 1 and plain.message_count == 0)
        assert last(queue) == {"published": 1, "dead_lettered": 1, "expired": 1}
        assert last(plain) == {"published": 1, "expired": 1}


async def test_a_message_that_a_full_queue_refuses_becomes_a_dead_letter() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(
            max_length=1, overflow=OverflowPolicy.REJECT_PUBLISH_DEAD_LETTER, dead_letter_exchange="dead"
        )
        await rig.publish(b"a")
        with pytest.raises(QueueFull):
            await rig.publish(b"b")
        await until(lambda: dead.message_count == 1)
        assert last(queue) == {"published": 1, "dead_lettered": 1}


async def test_a_stream_counts_every_consumer() -> None:
    async with running() as rig:
        stream = await rig.stream()
        await rig.publish(b"a", b"b", key=b"s")
        for _ in range(2):
            taker = Taker()
            stream.reading(0).subscribe(taker)
            await taker.has(2)
        assert counted(stream.counters) == {"published": 2, "delivered": 4}
        assert rig.broker.traffic[stream.backing.name].records_out == 4


async def test_deliveries_of_one_queue_count_for_the_topics_they_came_from() -> None:
    async with running() as rig:
        queue, taker = await rig.queue(), Taker()
        for name in ("red", "blue"):
            await rig.exchange(name, ExchangeKind.FANOUT)
            await rig.bind(name, "q")
        for name in ("red", "blue", "red"):
            await rig.publish(b"abc", exchange=name)
        queue.subscribe(taker)
        await taker.has(3)
        traffic = {topic.name: rig.broker.traffic.of(topic.name) for topic in rig.broker.topics}
        assert {name: (each.records_out, each.bytes_out) for name, each in traffic.items()} == {
            "red": (2, 6),
            "blue": (1, 3),
        }
