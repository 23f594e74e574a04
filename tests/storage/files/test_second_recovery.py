"""Recovery after a recovery that did not get to its end, and after losses that are no damage."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from posthouse.model.topics import Topic
from posthouse.storage.files.catalog.producer_rows import partition_key
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.journal.head import SLOT_DISTANCE, encode_slot, read_head
from posthouse.storage.files.journal.journal import head_path, journal_files
from posthouse.storage.files.journal.reader import frames_in
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space
from tests.alarms import alarms
from tests.storage.batches import append, make_topic, read_all
from tests.storage.stores import crash_copy, file_storage, opened

VALUES = {offset: b"%d" % offset for offset in range(3)}


async def build(place: Path, topic: Topic) -> Path:
    """What a broker leaves that is killed after a commit for each of the values."""
    async with opened(place / "running") as storage:
        await storage.create_topics([topic])
        for value in VALUES.values():
            await storage.commit([append(topic.partition(0), value)])
        return await crash_copy(storage, place / "crashed")


def make_head_stale(data: Path) -> None:
    """A power cut leaves the head as it was synced when the file was begun."""
    path = head_path(str(data / "journal"))
    head = read_head(OsDisk(), path)
    assert head is not None
    before = head.first - 1
    slots = [encode_slot(number, head.salt, head.first, head.file_bytes, before, before) for number in (2, 1)]
    Path(path).write_bytes(slots[0].ljust(SLOT_DISTANCE, b"\0") + slots[1])


def journal_file(data: Path) -> Path:
    [file] = journal_files(OsDisk(), str(data / "journal"))
    return Path(file.path)


def kill_before_checkpoint(data: Path) -> None:
    """Recover as a start does, up to the new journal file, and no further."""
    storage = file_storage(data)
    storage._startup.open()
    storage._journal.close(everything_checkpointed=False)
    storage._catalog.close()
    storage._startup._data_directory.release()


@pytest.mark.parametrize("has_head", [True, False])
async def test_batches_that_one_recovery_kept_are_kept_by_the_next(tmp_path: Path, has_head: bool) -> None:
    """The first one is killed before its checkpoint: what it found must still be provable."""
    topic = make_topic()
    data = await build(tmp_path, topic)
    if has_head:
        make_head_stale(data)
    else:
        Path(head_path(str(data / "journal"))).unlink()
    journal_file(data).unlink()
    for _ in range(2):
        kill_before_checkpoint(data)
    async with opened(data) as storage:
        assert storage.has_lost_commits
        assert await read_all(storage, topic.partition(0)) == VALUES
        await storage.forget_lost_commits()
        again = await crash_copy(storage, tmp_path / "again")
    async with opened(again) as storage:
        assert not storage.has_lost_commits


async def test_a_gap_is_reported_by_one_start_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also where nothing but the journal's numbers is left for a checkpoint to write."""
    async with opened(tmp_path / "running") as storage:
        await storage.commit([Put(Space.OFFSETS, b"group", b"1")])
        data = await crash_copy(storage, tmp_path / "crashed")
    journal_file(data).unlink()
    async with opened(data) as storage:
        await storage.forget_lost_commits()
        again = await crash_copy(storage, tmp_path / "again")
    assert "the journal is damaged" in caplog.text
    caplog.clear()
    async with opened(again) as storage:
        assert not storage.has_lost_commits
    assert not alarms(caplog)


async def test_lost_commits_are_reported_until_the_broker_has_acted_on_them(tmp_path: Path) -> None:
    topic = make_topic()
    data = await build(tmp_path, topic)
    journal_file(data).unlink()

    async def reports(storage: FileStorage) -> bool:
        await storage.open()
        return storage.has_lost_commits

    for _ in range(2):  # stopped well, but nothing was done about it
        storage = file_storage(data)
        assert await reports(storage)
        await storage.close()
    (data / "catalog.sqlite").write_bytes(b"no database at all " * 100)
    storage = file_storage(data)
    assert await reports(storage), "the catalog's backup knows of it, too"
    await storage.forget_lost_commits()
    await storage.close()
    storage = file_storage(data)
    assert not await reports(storage)
    await storage.close()


async def test_frames_without_a_sync_are_no_damage_when_their_topic_is_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(durability="os")
    async with opened(tmp_path / "running") as storage:
        await storage.create_topics([topic])
        for value in VALUES.values():
            await storage.commit([append(topic.partition(0), value)])
        await storage.delete_topics([topic.id])
        data = await crash_copy(storage, tmp_path / "crashed")
    path = journal_file(data)
    assert len(frames_in(OsDisk(), journal_files(OsDisk(), str(data / "journal"))[0])) == len(VALUES)
    path.write_bytes(bytes(path.stat().st_size))
    caplog.clear()
    async with opened(data) as storage:
        assert not storage.has_lost_commits
    assert "the journal is damaged" not in caplog.text
    assert "acknowledged without a sync (durability=os) are missing" in caplog.text


async def test_producers_of_a_restored_catalog_do_not_come_back(tmp_path: Path) -> None:
    """The segments tell who wrote. A row that is neither read nor removed would tell otherwise later."""
    topic = make_topic()
    partition = topic.partition(0)
    async with opened(tmp_path) as storage:
        await storage.create_topics([topic])
        storage._checkpoints.state[Space.PRODUCERS.value, partition_key(partition)] = b"of format 1"
    (tmp_path / "catalog.sqlite").write_bytes(b"no database at all " * 100)
    async with opened(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "catalog.sqlite")) as catalog:
        query = "SELECT key FROM state WHERE space = ?"
        assert not catalog.execute(query, (Space.PRODUCERS.value,)).fetchall()
