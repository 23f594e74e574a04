"""What makes messages leave a queue by themselves: age, length, too many deliveries. And where they go."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.queues.queue import Queue
from posthouse.model.clock import ManualClock
from posthouse.model.errors import QueueBlocked, QueueFull
from posthouse.records.header_section import decode_section
from tests.broker.queues.rig import SESSION, Rig, Taker, running


async def values(queue: Queue) -> list[bytes]:
    found = []
    while (message := await queue.get()) is not None:
        found.append(message.value or b"")
    return found


async def count(queue: Queue, expected: int) -> None:
    async with asyncio.timeout(30):
        while queue.message_count != expected:
            await asyncio.sleep(0.005)


async def with_dead_letters(rig: Rig, **options: Any) -> tuple[Queue, Queue]:
    await rig.exchange("dead")
    dead = await rig.queue("dead-letters")
    await rig.bind("dead", "dead-letters")
    queue = await rig.queue(dead_letter_exchange="dead", **options)
    return queue, dead


async def deaths(queue: Queue) -> list[dict[str, object]]:
    message = await queue.get()
    assert message is not None
    told: list[dict[str, object]] = json.loads(
        dict(decode_section(message.headers))[b"posthouse.deaths"] or b""
    )
    return told


async def test_messages_expire_wherever_they_are_in_the_queue() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"stays")
        await rig.publish(b"goes", expires_in_ms=20)
        await rig.publish(b"stays too", expires_in_ms=60_000)
        await count(queue, 2)
        assert await values(queue) == [b"stays", b"stays too"]


async def test_the_queue_says_how_long_messages_live() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue, dead = await with_dead_letters(rig, message_ttl_ms=30)
        await rig.publish(b"a", b"b")
        assert queue.message_count == 2
        clock.advance(1)
        await count(dead, 2)
        assert queue.message_count == 0
        [death] = await deaths(dead)
        assert death["reason"] == "expired"
        assert death["queue"] == "q"
        assert death["count"] == 1
        assert death["keys"] == ["q"]


async def test_what_expires_in_a_backlog_expires_after_a_restart_too(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock) as rig:
        await rig.queue()
        await rig.publish(b"goes", expires_in_ms=300)
        await rig.publish(b"stays")
    async with running(tmp_path, clock) as rig:
        queue = rig.found("q")
        assert queue.message_count == 2
        clock.advance(1)
        await count(queue, 1)
        assert await values(queue) == [b"stays"]


async def test_a_leased_message_does_not_expire() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue(message_ttl_ms=30)
        await rig.publish(b"a")
        message = await queue.get()
        assert message is not None
        clock.advance(1)
        await asyncio.sleep(0.06)
        assert queue.leased_count == 1
        queue.release([message])
        assert await queue.get() is None
        assert queue.message_count == 0


async def test_nothing_expires_while_the_clock_stands_still() -> None:
    clock = ManualClock()
    async with running(clock=clock) as rig:
        queue = await rig.queue()
        await rig.publish(b"a", expires_in_ms=5)
        await asyncio.sleep(0.03)
        assert queue.message_count == 1
        clock.advance(1)
        assert await queue.get() is None


async def test_the_oldest_go_when_there_are_too_many() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=3)
        await rig.publish(*[str(number).encode() for number in range(10)])
        assert queue.message_count == 3
        await count(queue, 3)
        assert await values(queue) == [b"7", b"8", b"9"]


async def test_the_oldest_go_when_they_are_too_large() -> None:
    async with running() as rig:
        queue, dead = await with_dead_letters(rig, max_bytes=250)
        await rig.publish(b"a" * 100, b"b" * 100, b"c" * 100)
        await count(dead, 1)
        assert await values(queue) == [b"b" * 100, b"c" * 100]
        assert (await deaths(dead))[0]["reason"] == "maxlen"


async def test_a_full_queue_refuses() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=2, overflow=OverflowPolicy.REJECT_PUBLISH)
        with pytest.raises(QueueFull):
            await rig.publish(b"a", b"b", b"c")
        await count(queue, 2)
        message = await queue.get()
        assert message is not None
        await rig.publish(b"d")
        assert await values(queue) == [b"b", b"d"]


async def test_what_is_refused_may_be_a_dead_letter() -> None:
    async with running() as rig:
        queue, dead = await with_dead_letters(
            rig, max_length=1, overflow=OverflowPolicy.REJECT_PUBLISH_DEAD_LETTER
        )
        await rig.publish(b"a")
        with pytest.raises(QueueFull):
            await rig.publish(b"b")
        await count(dead, 1)
        assert queue.message_count == 1


async def test_a_full_queue_may_ask_to_wait() -> None:
    async with running() as rig:
        queue = await rig.queue(max_length=1, overflow=OverflowPolicy.BLOCK)
        await rig.publish(b"a")
        with pytest.raises(QueueBlocked) as blocked:
            await rig.publish(b"b")
        assert blocked.value.queue is queue
        room = asyncio.Event()
        queue.room.wait(room.set)
        message = await queue.get()
        assert message is not None
        queue.ack([message])
        async with asyncio.timeout(30):
            await room.wait()
        await rig.publish(b"b")
        assert await values(queue) == [b"b"]


async def test_rejected_messages_are_dead_letters() -> None:
    async with running() as rig:
        queue, dead = await with_dead_letters(rig, dead_letter_key="other")
        await rig.publish(b"a")
        message = await queue.get()
        assert message is not None
        queue.reject([message])
        await count(dead, 1)
        assert queue.leased_count == 0
        letter = await dead.get()
        assert letter is not None
        assert (letter.key, letter.value) == (b"other", b"a")


async def test_without_a_place_for_them_rejected_messages_are_gone() -> None:
    async with running() as rig:
        queue = await rig.queue()
        await rig.publish(b"a")
        message = await queue.get()
        assert message is not None
        queue.reject([message])
        assert (queue.message_count, queue.leased_count) == (0, 0)


async def test_a_message_may_come_back_only_so_often() -> None:
    async with running() as rig:
        queue, dead = await with_dead_letters(rig, delivery_limit=2)
        await rig.publish(b"a")
        for _ in range(3):
            message = await queue.get()
            assert message is not None
            queue.release([message])
        await count(dead, 1)
        assert queue.message_count == 0
        assert (await deaths(dead))[0]["reason"] == "delivery_limit"


async def test_dead_letters_that_go_in_circles_end() -> None:
    async with running() as rig:
        queue = await rig.queue(message_ttl_ms=10, dead_letter_exchange="", dead_letter_key="q")
        await rig.publish(b"a")
        await count(queue, 0)
        await asyncio.sleep(0.05)
        assert queue.message_count == 0


async def test_a_consumer_that_rejects_may_let_them_go_round() -> None:
    async with running() as rig:
        queue = await rig.queue(dead_letter_exchange="", dead_letter_key="q")
        taker = Taker(credit=1)
        queue.subscribe(taker)
        await rig.publish(b"a")
        for turn in range(1, 4):
            await taker.has(turn)
            queue.reject([taker.taken[-1]])
            taker.raise_credit(queue, 1)
        await taker.has(4)
        told = json.loads(dict(decode_section(taker.taken[-1].headers))[b"posthouse.deaths"] or b"")
        assert told[0]["count"] == 3


async def test_a_dead_letter_is_written_with_the_end_of_the_original(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        queue, dead = await with_dead_letters(rig)
        await rig.publish(b"a", b"b")
        message = await queue.get()
        assert message is not None
        queue.reject([message])
        await count(dead, 1)
        rig.broker._storage._flusher._fenced = rig.broker._storage._flusher.fence("as if the power went")  # type: ignore[attr-defined]
    async with running(tmp_path) as rig:
        assert rig.namespace.queue("dead-letters", SESSION).message_count == 1
        assert rig.found("q").message_count == 1


async def test_unused_queues_go_when_they_say_so() -> None:
    async with running() as rig:
        await rig.queue(expires_ms=50)
        async with asyncio.timeout(30):
            while "q" in rig.namespace.queues:
                await asyncio.sleep(0.01)
