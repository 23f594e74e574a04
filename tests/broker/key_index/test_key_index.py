"""The index: what it finds, what it reads instead, and what it gives up."""

import asyncio
from pathlib import Path

import pytest

from posthouse.broker.key_index.files import MemoryFiles
from posthouse.broker.key_index.key_index import IndexLimits
from posthouse.broker.key_index.key_search import SearchLimits
from posthouse.broker.key_index.names import NameQuery
from posthouse.model.clock import ManualClock
from posthouse.records.compression import Codec
from posthouse.records.record_names import Name, NameKind
from posthouse.storage.operations import Trim
from tests.broker.key_index.rig import in_memory, indexed_topic, keyed, on_disk, write
from tests.storage.batches import make_topic
from tests.storage.stores import file_storage

LARGE = IndexLimits(file_entries=1000, memory_entries=100_000)


async def test_a_record_is_found_by_its_key_newest_first() -> None:
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        await write(rig, topic.partition(0), b"a", b"b", b"a")
        await write(rig, topic.partition(0), b"b", b"a")
        assert await rig.offsets(topic, b"a") == [4, 2, 0], "of the log alone"
        await rig.index.catch_up()
        assert rig.index.behind() == 0
        await write(rig, topic.partition(0), b"a")
        assert await rig.offsets(topic, b"a") == [5, 4, 2, 0], "of index and log"
        assert await rig.offsets(topic, b"c") == []


async def test_a_topic_without_index_is_read() -> None:
    topic = make_topic()
    async with in_memory([topic]) as rig:
        await write(rig, topic.partition(0), b"a", b"b")
        await rig.index.catch_up()
        assert rig.index.indexed_records == 0
        assert await rig.offsets(topic, b"b") == [1]


async def test_only_the_batches_of_a_hit_are_read() -> None:
    topic = indexed_topic()
    async with in_memory([topic], LARGE) as rig:
        for number in range(200):
            await write(rig, topic.partition(0), b"%d" % number)
        whole = await rig.find(topic, b"77")
        await rig.index.catch_up()
        found = await rig.find(topic, b"77")
        assert [record.offset for _, record in found.records] == [77]
        assert found.read_bytes * 100 < whole.read_bytes


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (NameKind.KEY, b"red", [0]),
        (NameKind.KEY, b"green", [0]),
        (NameKind.KEY, b"red  green", [0]),
        (NameKind.KEY, b"", []),
        (NameKind.MESSAGE_ID, b"0A1B", [0]),
        (NameKind.MESSAGE_ID, b"red", []),
        (NameKind.KEY, b"0A1B", []),
        (NameKind.MESSAGE_ID, b"m-1", [1]),
    ],
)
async def test_headers_have_keys_and_message_ids(kind: NameKind, name: bytes, expected: list[int]) -> None:
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        headers = [("KEYS", b"red  green"), ("UNIQ_KEY", b"0A1B"), ("other", b"red")]
        await rig.storage.commit([keyed(topic.partition(0), (b"red  green", 1), headers=headers)])
        await rig.storage.commit(
            [keyed(topic.partition(0), (None, 1), headers=[("amqp.message-id", b"m-1")])]
        )
        for _ in range(2):
            found = await rig.find(topic, name, kind=kind)
            assert [record.offset for _, record in found.records] == expected
            await rig.index.catch_up()


async def test_times_limit_a_search_in_milliseconds() -> None:
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        times = [-1, 0, 1, 999, 1000, 1001, 5000, 1 << 50]
        await rig.storage.commit([keyed(topic.partition(0), *((b"a", time) for time in times))])
        for _ in range(2):
            for since in times:
                for until in times:
                    expected = [n for n, time in enumerate(times) if since <= time <= until]
                    assert await rig.offsets(topic, b"a", since=since, until=until) == expected[::-1]
            await rig.index.catch_up()


async def test_files_grow_by_joining_and_are_never_too_many() -> None:
    topic = indexed_topic()
    limits = IndexLimits(file_entries=64, memory_entries=1)
    async with in_memory([topic], limits) as rig:
        for number in range(300):
            await write(rig, topic.partition(0), b"%d" % (number % 7))
            await rig.index.catch_up()
        names = rig.files.names(topic.id)
        assert 5 <= len(names) <= 12
        assert rig.index.entries_in_memory == 0
        assert await rig.offsets(topic, b"3") == [n for n in reversed(range(300)) if n % 7 == 3]


async def test_memory_is_bounded_over_all_partitions() -> None:
    topic = indexed_topic(partitions=10)
    limits = IndexLimits(file_entries=1000, memory_entries=50)
    async with in_memory([topic], limits) as rig:
        for _ in range(20):
            for partition in topic.partition_ids():
                await write(rig, partition, b"a", b"b")
            await rig.index.catch_up()
            assert rig.index.entries_in_memory <= 50
        found = await rig.find(topic, b"a")
        assert len(found.records) == 200


async def test_what_retention_removes_is_not_found_and_its_files_go() -> None:
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        for _ in range(10):
            await write(rig, topic.partition(0), b"a", b"b", b"c", b"d", b"e")
            await rig.index.catch_up()
        before = rig.files.names(topic.id)
        await rig.storage.commit([Trim(topic.partition(0), 33)])
        assert await rig.offsets(topic, b"a") == [45, 40, 35]
        await rig.index.catch_up()
        assert await rig.offsets(topic, b"a") == [45, 40, 35]
        assert set(rig.files.names(topic.id)) < set(before)


async def test_a_deleted_topic_takes_its_index_along() -> None:
    topic, other = indexed_topic(), indexed_topic()
    async with in_memory([topic]) as rig:
        await rig.storage.create_topics([other])
        for each in (topic, other):
            await write(rig, each.partition(0), *([b"a"] * 9))
        await rig.index.catch_up()
        await rig.storage.delete_topics([topic.id])
        await rig.index.catch_up()
        assert rig.files.topics() == [other.id]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
async def test_compressed_batches_are_indexed(codec: Codec) -> None:
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        await rig.storage.commit([keyed(topic.partition(0), (b"a", 1), (b"b", 1), codec=codec)])
        await rig.index.catch_up()
        assert rig.index.behind() == 0
        assert await rig.offsets(topic, b"b") == [1]


async def test_a_batch_that_cannot_be_decoded_does_not_stop_the_index(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        await write(rig, topic.partition(0), b"a")
        broken = keyed(topic.partition(0), (b"a", 1), (b"a", 1), codec=Codec.GZIP)
        broken.batch[70:80] = bytes(10)
        await rig.storage.commit([broken])
        await write(rig, topic.partition(0), b"a")
        await asyncio.wait_for(rig.index.catch_up(), 30)
        assert rig.index.behind() == 2, "read by each search"
        assert await rig.offsets(topic, b"a") == [3, 0]
    assert "offset 1" in caplog.text


async def test_limits_end_a_search_and_are_told() -> None:
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        for _ in range(30):
            await write(rig, topic.partition(0), b"a", b"b")
        for _ in range(2):
            found = await rig.find(topic, b"a", limits=SearchLimits(records=3))
            assert [record.offset for _, record in found.records] == [58, 56, 54]
            assert not found.is_complete
            found = await rig.find(topic, b"a", limits=SearchLimits(records=100, record_bytes=12))
            assert [record.offset for _, record in found.records][:2] == [58, 56]
            assert len(found.records) <= 3 and not found.is_complete
            found = await rig.find(topic, b"a", limits=SearchLimits(records=100, seconds=0))
            assert not found.records and not found.is_complete
            found = await rig.find(topic, b"a", limits=SearchLimits(records=100, read_bytes=0))
            assert not found.records and not found.is_complete
            await rig.index.catch_up()


async def test_names_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posthouse.broker.key_index.filling.name_hash", lambda name: 7)
    monkeypatch.setattr("posthouse.broker.key_index.key_index.name_hash", lambda name: 7)
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        for _ in range(10):
            await write(rig, topic.partition(0), b"a", b"b")
        await rig.index.catch_up()
        assert rig.files.names(topic.id)
        assert await rig.offsets(topic, b"b") == list(range(19, 0, -2))


async def test_a_damaged_file_is_read_around_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        for _ in range(8):
            await write(rig, topic.partition(0), b"a", b"b")
        await rig.index.catch_up()
        assert isinstance(rig.files, MemoryFiles)
        files = rig.files._files[topic.id]
        name = min(files)
        for at in range(64, len(files[name])):
            files[name] = files[name][:at] + bytes([files[name][at] ^ 1]) + files[name][at + 1 :]
            assert await rig.offsets(topic, b"a") == list(range(14, -1, -2)), f"byte {at} is damaged"
            if name in files:  # of the other bucket
                await rig.offsets(topic, b"b")
            await rig.index.catch_up()
            assert rig.index.behind() == 0
            name = min(files)
    assert rig.index.damaged_files
    assert "because of damage" in caplog.text


async def test_what_compaction_removed_is_not_found() -> None:
    topic = indexed_topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    async with in_memory([topic]) as rig:
        for _ in range(30):
            await write(rig, topic.partition(0), b"a", b"b")
        await rig.index.catch_up()
        before = rig.files.names(topic.id)
        await rig.storage.compact()
        left = await rig.offsets(topic, b"a")
        assert 0 < len(left) < 30
        await rig.index.catch_up()
        assert await rig.offsets(topic, b"a") == left
        assert sum(rig.files.size(topic.id, name) for name in rig.files.names(topic.id)) < len(before) * 100


async def test_a_restart_keeps_files_and_makes_the_rest_again(tmp_path: Path) -> None:
    topic, clock = indexed_topic(), ManualClock()
    for life in range(3):
        storage = file_storage(tmp_path, clock=clock)
        await storage.open()
        if not life:
            await storage.create_topics([topic])
        rig = await on_disk(storage, str(tmp_path), clock)
        for _ in range(5):
            await write(rig, topic.partition(0), b"a", b"b", b"c")
        await rig.index.catch_up()
        end = 15 * (life + 1)
        assert rig.index.indexed_records <= 15 + 8, "what is in files is not read again"
        assert await rig.offsets(topic, b"c") == list(range(end - 1, 0, -3))
        await rig.stop()
        await storage.close()
    assert (tmp_path / "key-index" / topic.id.hex()).is_dir()


async def test_files_of_a_lost_end_are_deleted(tmp_path: Path) -> None:
    """The log is that of before, the index is newer; then other records are written in place of the lost."""
    topic, clock = indexed_topic(), ManualClock()
    storage = file_storage(tmp_path / "older", clock=clock)
    await storage.open()
    await storage.create_topics([topic])
    rig = await on_disk(storage, str(tmp_path / "newer"), clock)
    await write(rig, topic.partition(0), *([b"a"] * 3))
    await rig.index.catch_up()
    await storage.close()
    other = file_storage(tmp_path / "other", clock=clock)
    await other.open()
    await other.create_topics([topic])
    rig = await on_disk(other, str(tmp_path / "newer"), clock)
    await write(rig, topic.partition(0), *([b"b"] * 20))
    await rig.index.catch_up()
    await rig.stop()
    await other.close()

    storage = file_storage(tmp_path / "older", clock=clock)
    await storage.open()
    await write(rig := await on_disk(storage, str(tmp_path / "elsewhere"), clock), topic.partition(0), b"c")
    await rig.stop()
    rig = await on_disk(storage, str(tmp_path / "newer"), clock)
    assert rig.files.names(topic.id) == []
    assert await rig.offsets(topic, b"c") == [3]
    await rig.stop()
    await storage.close()


async def test_a_file_of_another_log_is_found_out_by_its_last_batch(tmp_path: Path) -> None:
    topic, clock = indexed_topic(), ManualClock()
    for place, key in (("one", b"a"), ("two", b"b")):
        storage = file_storage(tmp_path / place, clock=clock)
        await storage.open()
        await storage.create_topics([topic])
        rig = await on_disk(storage, str(tmp_path / "index"), clock)
        await write(rig, topic.partition(0), *([key] * 8))
        assert await rig.offsets(topic, key) == list(range(7, -1, -1))
        await rig.index.catch_up()
        assert await rig.offsets(topic, key) == list(range(7, -1, -1))
        await rig.stop()
        await storage.close()


async def test_it_works_in_the_background() -> None:
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        await write(rig, topic.partition(0), b"a")
        rig.index.start()
        async with asyncio.timeout(30):
            while rig.index.behind():
                await asyncio.sleep(0.01)


async def test_oldest_first_is_the_same_the_other_way_round() -> None:
    topic = indexed_topic()
    async with in_memory([topic]) as rig:
        for _ in range(10):
            await write(rig, topic.partition(0), b"a", b"b")
            await rig.index.catch_up()
        await write(rig, topic.partition(0), b"a")
        query = NameQuery(Name(NameKind.KEY, b"a"))
        rising = [place async for place in rig.index.search(query)(topic.partition(0), 0, 21)]
        falling = [
            place async for place in rig.index.search(query)(topic.partition(0), 0, 21, newest_first=True)
        ]
        assert falling == rising[::-1]
        assert [place.first for place in rising] == [*range(0, 20, 2), 20]
        assert [place.is_exact for place in rising] == [True] * 10 + [False]
