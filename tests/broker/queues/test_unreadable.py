"""Messages that cannot be read for now, because a file is not in its place: they stay, and others go on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.queues.queue import Queue
from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId
from posthouse.storage.files.engine import FileStorage
from tests.alarms import alarms
from tests.broker.queues.lazy_rig import until
from tests.broker.queues.rig import Rig, Taker, running, settle_turns, values_of
from tests.broker.queues.stragglers import relieve, stashed_in, with_stragglers
from tests.broker.queues.test_queue_retention import publish, take

pytestmark = pytest.mark.usefixtures("small")


def misplace(rig: Rig, partition: PartitionId, count: int | None = None) -> None:
    """As if the first segments, or all, were those of another partition."""
    assert isinstance(rig.storage, FileStorage)
    for segment in rig.storage._logs[partition].segments[:count]:
        segment.misplaced = "it is the file of another partition"


async def filled(rig: Rig, count: int, **options: Any) -> Queue:
    queue = await rig.queue(**options)
    for number in range(count):
        await rig.publish(b"%d" % number)
    return queue


async def test_a_queue_that_is_too_long_goes_on_without_them(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        queue = await filled(rig, 3, max_length=3)
        misplace(rig, rig.partition("q"))
        overflow = queue.dispatcher.overflow
        overflow.definition = replace(queue.definition, max_length=1)  # as if two had been leased
        steps = 0
        step = overflow._drop

        async def counted() -> None:
            nonlocal steps
            steps += 1
            await step()

        overflow._drop = counted  # type: ignore[method-assign]
        taker = Taker()
        queue.subscribe(taker)
        overflow.check()
        await until(lambda: overflow.task is None)
        await settle_turns(100)
        assert steps <= 2
        assert (await queue.get(), queue.message_count) == (None, 3), "they are not ready, and not gone"


async def test_what_follows_them_is_handed_out(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        queue = await filled(rig, 20, max_length=100)
        misplace(rig, rig.partition("q"), 1)
        values = await values_of(queue)
        assert values and values == [b"%d" % number for number in range(20 - len(values), 20)]
        assert queue.message_count == 20 - len(values)
        assert queue.purge() == 20 - len(values)
        assert queue.message_count == 0


async def test_what_follows_references_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        queue = await filled(rig, 20)
        misplace(rig, queue.lanes[0].log, 1)
        reader = queue.dispatcher.new_reader(queue.lanes[0])
        found = [message.value async for messages in reader.messages(20) for message in messages]
        assert found and found == [b"%d" % number for number in range(20 - len(found), 20)]


async def test_references_that_cannot_be_read_keep_nothing_of_other_vhosts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, namespaces=("/", "other")) as rig:
        queue = await filled(rig, 20)
        other = Rig(rig.broker)
        other.namespace = rig.broker.namespaces.get("other")
        elsewhere = await filled(other, 20)
        misplace(rig, queue.lanes[0].log)
        elsewhere.purge()
        for _ in range(2):
            await rig.retention.reclaim()
        assert rig.storage.bounds(rig.partition("q")).start == 0
        assert rig.storage.bounds(rig.partition(elsewhere.backing.name)).start == 20
        told = [record.getMessage() for record in caplog.records if "may refer to" in record.getMessage()]
        assert len(told) == 1 and told[0].startswith('queue "q" (vhost "/"): ')


async def test_one_that_was_put_aside_does_not_block_those_that_follow(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, clock=clock) as rig:
        queue, held = await with_stragglers(rig, clock, 3, 7, 12)
        await rig.publish(b"next")
        misplace(rig, queue.stash)
        for message in held:
            message.value = None
        queue.release(held)
        assert await values_of(queue) == [b"next"]
        assert (await queue.get(), queue.message_count) == (None, 3)
        assert sum("stays in the queue" in record.getMessage() for record in caplog.records) == 3
        assert queue.purge() == 3
        assert queue.message_count == 0


async def test_a_stream_that_cannot_be_cut_does_not_keep_others_from_being_reclaimed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as rig:
        stream = await rig.stream(max_bytes=1, segment_bytes=10)
        await rig.publish(*[b"%d" % number for number in range(20)], key=b"s")
        misplace(rig, stream.lanes[0].log)
        queue = await filled(rig, 5)
        queue.purge()
        for _ in range(2):
            await rig.retention.reclaim()
        assert rig.storage.bounds(queue.lanes[0].log).start == 5
        messages = [record.getMessage() for record in caplog.records]
        told = [message for message in messages if "its retention removes nothing" in message]
        assert len(told) == 1 and told[0].startswith('stream "s" (vhost "/"): ')


async def test_a_damaged_stash_does_not_stop_the_relief_of_other_queues(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, clock=clock) as rig:
        damaged, held = await with_stragglers(rig, clock, 0, 1, 2, 3, 4)
        damaged.ack(held[1:])
        misplace(rig, damaged.stash)
        other = await rig.queue("r")
        await publish(rig, 40, key=b"r")
        other.ack((await take(other, 40))[1:])
        await relieve(rig, clock)
        assert stashed_in(damaged) == stashed_in(other) == [0]
        assert any('queue "q"' in each.getMessage() for each in alarms(caplog))
