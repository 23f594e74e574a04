"""Dead letters that have no place, or that nobody can read."""

import pytest

from posthouse.broker.queues.definition import OverflowPolicy
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import PosthouseError, RecordTooLarge
from posthouse.records.header_section import encode_section
from tests.broker.queues.lazy_rig import dead_letter_queue, get, until
from tests.broker.queues.rig import PLAIN, running


async def test_a_dead_letter_for_a_full_queue_is_dropped() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig, max_length=1, overflow=OverflowPolicy.REJECT_PUBLISH)
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a", b"b", b"c")
        queue.reject([await get(queue), await get(queue)])
        await until(lambda: queue.leased_count == 0)
        assert (queue.message_count, dead.message_count) == (1, 1)
        assert dead.room._expected == 0


async def test_a_dead_letter_does_not_wait_for_room() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig, max_length=1, overflow=OverflowPolicy.BLOCK)
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a", b"b")
        queue.reject([await get(queue), await get(queue)])
        await until(lambda: dead.message_count == 2)
        assert queue.leased_count == 0


async def test_a_dead_letter_that_is_too_large_is_dropped() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        await rig.broker.create_topics([NewTopic(name="dead", overrides={"max.message.bytes": "1000"})])
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a" * 2000, b"b")
        queue.reject([await get(queue), await get(queue)])
        await until(lambda: dead.message_count == 1)
        assert (queue.message_count, queue.leased_count) == (0, 0)


@pytest.mark.parametrize(
    "told",
    [
        b'[{"queue":"q","reason":"rejected","count":"many"}]',
        b'[{"queue":"q","reason":"rejected","count":null}]',
        b"[" * 100_000,
        b"\xff",
        b"{}",
        None,
    ],
    ids=["text", "null", "deep", "not UTF-8", "no list", "nothing"],
)
async def test_whatever_a_client_writes_of_deaths(told: bytes | None) -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a", headers=encode_section([(b"posthouse.deaths", told)]))
        queue.reject([await get(queue)])
        await until(lambda: dead.message_count == 1)
        assert queue.leased_count == 0


async def test_headers_that_cannot_be_read_do_not_keep_a_message_alive() -> None:
    async with running() as rig:
        dead = await dead_letter_queue(rig)
        queue = await rig.queue(dead_letter_exchange="dead")
        await rig.publish(b"a", headers=b"\x02\x7ecut off")
        queue.reject([await get(queue)])
        await until(lambda: dead.message_count == 1)
        assert queue.leased_count == 0


async def test_one_message_that_is_too_large_does_not_take_others_along() -> None:
    async with running() as rig:
        await rig.exchange("x")
        queue = await rig.queue()
        await rig.bind("x", "q")
        await rig.broker.create_topics([NewTopic(name="x", overrides={"max.message.bytes": "1000"})])
        exchange = rig.namespace.router.exchange("x")
        ends: list[PosthouseError | None] = []
        rig.broker.publishing.wave.on_end(ends.append)
        rig.namespace.publish(exchange, b"", b"small", PLAIN, rig.broker.publishing.wave)
        with pytest.raises(RecordTooLarge):
            rig.namespace.publish(exchange, b"", b"x" * 5000, PLAIN, rig.broker.publishing.wave)
        await until(lambda: ends)
        assert ends == [None]
        assert queue.message_count == 1
