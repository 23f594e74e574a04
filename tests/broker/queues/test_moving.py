"""Messages moved by an operator: to another queue, or back to the queue that they died in."""

import asyncio
import json

import pytest

from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.moving import Moved
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.record_headers import DEATHS
from posthouse.model.errors import InvalidDefinition, PosthouseError
from posthouse.records.header_section import encode_section
from tests.broker.queues.lazy_rig import dead_letter_queue, get, lazy, until
from tests.broker.queues.rig import Rig, running, values_of


async def _move(rig: Rig, source: str, target: str, most: int = 1000) -> Moved:
    queues = rig.namespace.queues
    return await rig.broker.namespaces.mover(rig.namespace).move(queues[source], queues[target], most)


async def _requeue(rig: Rig, source: str, most: int = 1000) -> Moved:
    return await rig.broker.namespaces.mover(rig.namespace).requeue(rig.namespace.queues[source], most)


async def test_the_oldest_go_with_their_keys_in_order() -> None:
    async with running() as rig:
        source, target = await rig.queue(), await rig.queue("other")
        await rig.exchange("x")
        await rig.bind("x", "q")
        await rig.publish(b"a", b"b", b"c", key=b"news", exchange="x")
        assert await _move(rig, "q", "other", 2) == Moved(to={"other": 2})
        assert (source.message_count, target.message_count) == (1, 2)
        first = await get(target)
        assert (first.value, first.key, first.redelivered) == (b"a", b"news", False)
        assert await values_of(target) == [b"b"]
        assert await values_of(source) == [b"c"]


async def test_many_take_several_commits() -> None:
    async with running() as rig:
        source, target = await rig.queue(), await rig.queue("other")
        values = [b"%04d" % number for number in range(2000)]
        await rig.publish(*values)
        assert (await _move(rig, "q", "other", 1500)).count == 1500
        assert await values_of(target) == values[:1500]
        assert await values_of(source) == values[1500:]


async def test_leased_messages_stay_with_their_consumer() -> None:
    async with running() as rig:
        source = await rig.queue()
        await rig.queue("other")
        await rig.publish(b"a", b"b")
        held = await get(source)
        assert (await _move(rig, "q", "other")).count == 1
        source.release([held])
        assert await values_of(source) == [b"a"]


async def test_a_queue_by_key_is_moved_whole() -> None:
    async with running() as rig:
        source, target = await rig.queue(ordered_by_key=True), await rig.queue("other")
        await rig.publish(b"a", b"b", b"c")
        held = await get(source)
        assert (await _move(rig, "q", "other")).count == 2
        source.ack([held])
        assert await values_of(source) == []
        assert await values_of(target) == [b"b", b"c"]


async def test_a_full_queue_takes_what_it_has_room_for() -> None:
    async with running() as rig:
        source = await rig.queue()
        target = await rig.queue("other", max_length=2, overflow=OverflowPolicy.REJECT_PUBLISH)
        await rig.publish(b"a", b"b", b"c")
        moved = await _move(rig, "q", "other")
        assert moved == Moved(to={"other": 2}, left=1, reason="queue 'other' is full")
        assert (source.message_count, source.leased_count, target.message_count) == (1, 0, 2)
        assert target.room._expected == 0


async def test_what_cannot_be_moved() -> None:
    async with running() as rig:
        await rig.queue()
        await rig.stream("s")
        with pytest.raises(InvalidDefinition, match="same queue"):
            await _move(rig, "q", "q")
        with pytest.raises(InvalidDefinition, match="keeps its messages"):
            await _move(rig, "s", "q")


async def test_a_stream_takes_messages() -> None:
    async with running() as rig:
        await rig.queue()
        stream = await rig.stream("s")
        await rig.publish(b"a")
        assert (await _move(rig, "q", "s")).count == 1
        assert [each.value for each in await stream.peek(5)] == [b"a"]


async def test_nothing_happens_where_the_disk_is_full() -> None:
    async with lazy() as (rig, storage):
        source, target = await rig.queue(), await rig.queue("other")
        source.dispatcher.requeue._retry_seconds = 0.01
        await rig.publish(b"a", b"b")
        await _move(rig, "q", "other", 1)
        storage.is_full = True
        with pytest.raises(PosthouseError):
            await _move(rig, "q", "other")
        storage.is_full = False
        await until(lambda: source.message_count == 1 and source.leased_count == 0)
        assert await values_of(source) == [b"b"]
        assert await values_of(target) == [b"a"]


async def test_a_caller_that_leaves_changes_nothing() -> None:
    async with running() as rig:
        source, target = await rig.queue(), await rig.queue("other")
        await rig.publish(b"a", b"b")
        moving = asyncio.create_task(_move(rig, "q", "other"))
        await until(lambda: source.leased_count == 2 or moving.done())
        moving.cancel()
        await until(lambda: target.message_count == 2)
        assert (source.message_count, source.leased_count) == (0, 0)


async def _died(rig: Rig, name: str, *values: bytes) -> Queue:
    queue = await rig.queue(name, dead_letter_exchange="dead", dead_letter_key="buried")
    await rig.publish(*values, key=name.encode())
    queue.reject([await get(queue) for _ in values])
    return queue


async def test_dead_letters_go_back_to_where_they_came_from() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        first, second = await _died(rig, "a", b"1", b"2"), await _died(rig, "b", b"3")
        await rig.publish(b"not dead", key=b"dead-letters")
        await until(lambda: dead.message_count == 4)
        moved = await _requeue(rig, "dead-letters")
        assert (dict(moved.to), moved.left) == ({"a": 2, "b": 1}, 1)
        assert moved.reason == "the message is not a dead letter"
        back = await get(first)
        assert (back.value, back.key) == (b"1", b"a")
        assert await values_of(first) == [b"2"]
        assert await values_of(second) == [b"3"]
        assert await values_of(dead) == [b"not dead"]


async def test_a_second_death_is_counted() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        queue = await _died(rig, "a", b"1")
        await until(lambda: dead.message_count == 1)
        await _requeue(rig, "dead-letters")
        queue.reject([await get(queue)])
        await until(lambda: dead.message_count == 1)
        [message] = await dead.peek(1)
        assert b'"count": 2' in message.headers


@pytest.mark.parametrize(
    ("deaths", "reason"),
    [
        ([{"queue": "gone", "reason": "expired", "count": 1}], "there is no queue 'gone'"),
        ([{"queue": "q", "reason": "expired", "count": 1}], "the message died in queue 'q' itself"),
        ([], "the message is not a dead letter"),
        ([{"reason": "expired"}], "there is no queue 'None'"),
    ],
)
async def test_dead_letters_without_a_way_back_stay(deaths: object, reason: str) -> None:
    async with running() as rig:
        queue = await rig.queue()
        note = encode_section([(DEATHS, json.dumps(deaths).encode())])
        await rig.publish(b"a", headers=note)
        assert await _requeue(rig, "q") == Moved(left=1, reason=reason)
        assert queue.message_count == 1


async def test_a_note_names_only_queues_whose_dead_letters_come_here() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        await rig.queue("plain")
        await rig.queue("elsewhere", dead_letter_exchange="", dead_letter_key="plain")
        await rig.queue("by-key", dead_letter_exchange="")
        for name in ("plain", "elsewhere", "by-key"):
            note = encode_section([(DEATHS, json.dumps([{"queue": name}]).encode())])
            await rig.publish(b"a", key=b"dead-letters", headers=note)
        moved = await _requeue(rig, "dead-letters")
        assert moved == Moved(
            to={"by-key": 1},
            left=2,
            reason="dead letters of queue 'elsewhere' do not come to queue 'dead-letters'",
        )
        assert dead.message_count == 2


async def test_a_key_that_is_no_text_goes_back() -> None:
    async with running() as rig:
        await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead")
        note = rb'[{"queue": "q", "keys": ["\ud800"]}]'
        await rig.publish(b"a", key=b"dead-letters", headers=encode_section([(DEATHS, note)]))
        assert (await _requeue(rig, "dead-letters")).to == {"q": 1}
        assert (await get(queue)).key == b"?"


async def test_a_failure_reserves_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as rig:
        await rig.queue()
        target = await rig.queue("other", max_length=9, overflow=OverflowPolicy.REJECT_PUBLISH)
        await rig.publish(b"a", b"b")
        mover = rig.broker.namespaces.mover(rig.namespace)
        places, place = 0, mover._place_in

        def place_one(queue: LogQueue, message: Message) -> object:
            nonlocal places
            places += 1
            if places == 2:
                raise ValueError("the second one fails")
            return place(queue, message)

        monkeypatch.setattr(mover, "_place_in", place_one)
        with pytest.raises(ValueError, match="the second one fails"):
            await mover.move(rig.namespace.queues["q"], target, 10)
        assert target.room._expected == 0
