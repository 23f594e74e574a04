"""What every storage promises to several callers, and to those that go away."""

import asyncio

from posthouse.model.errors import OffsetOutOfRange
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Trim
from tests.storage.batches import append, make_topic, read_all, values_in
from tests.storage.partitions import partition_in


async def test_closing_finishes_what_was_committed(storage: Storage) -> None:
    partition = await partition_in(storage)
    pending = [storage.commit([append(partition, b"%d" % number)]) for number in range(20)]
    await storage.close()
    assert [commit.result()[0].base_offset for commit in pending] == list(range(20))


async def test_a_caller_that_went_away_does_not_undo_its_commit(storage: Storage) -> None:
    partition = await partition_in(storage)
    storage.commit([append(partition, b"abandoned")]).cancel()
    [outcome] = await storage.commit([append(partition, b"next")])
    assert outcome.base_offset == 1
    assert await read_all(storage, partition) == {0: b"abandoned", 1: b"next"}


async def test_readers_beside_writers_see_whole_batches_in_order(storage: Storage) -> None:
    partition = await partition_in(storage)
    total = 200

    async def write() -> None:
        for number in range(total):
            await storage.commit([append(partition, b"%d" % number)])

    async def read() -> dict[int, bytes | None]:
        found: dict[int, bytes | None] = {}
        while len(found) < total:
            found |= await read_all(storage, partition, len(found), max_bytes=300)
            await asyncio.sleep(0)
        return found

    _, *results = await asyncio.gather(write(), read(), read(), read())
    assert all(found == {n: b"%d" % n for n in range(total)} for found in results)


async def test_readers_beside_a_moving_start_get_data_or_out_of_range(storage: Storage) -> None:
    partition = await partition_in(storage, segment_bytes="100", index_interval_bytes="0")
    for number in range(120):
        await storage.commit([append(partition, b"%d" % number, timestamps=[number])])

    async def trim() -> None:
        for start in range(0, 121, 4):
            await storage.commit([Trim(partition, start)])

    async def read() -> None:
        while (bounds := storage.bounds(partition)).start < bounds.end:
            try:
                found = values_in((await storage.read(partition, bounds.start, 10_000)).data)
            except OffsetOutOfRange:
                continue
            assert found == {n: b"%d" % n for n in found}
            await storage.find_timestamp(partition, 60)
            await storage.find_max_timestamp(partition)
            await asyncio.sleep(0)

    await asyncio.gather(trim(), read(), read())


async def test_a_caller_that_goes_away_leaves_topics_whole(storage: Storage) -> None:
    """A client hangs up while its topic is being made or deleted: it is there everywhere or nowhere."""
    for turns in range(4):
        topic = make_topic(f"topic-{turns}")
        creating = asyncio.create_task(storage.create_topics([topic]))
        await abandon(creating, turns)
        if topic.id not in storage.topics:
            await storage.create_topics([topic])
        await storage.commit([append(topic.partition(0), b"value")])
        deleting = asyncio.create_task(storage.delete_topics([topic.id]))
        await abandon(deleting, turns)
        await storage.delete_topics([topic.id])
        assert not storage.topics


async def abandon(task: asyncio.Task[None], turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
