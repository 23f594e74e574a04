"""Damage at the end of the journal: nothing that was acknowledged goes without a word, wherever it is hit.

A broker acknowledges commits one by one and is killed. Then the end of its journal is damaged, from every
frame on. The batches lie whole in the segments, so they are kept; that frames are missing is said by the
broker and by `posthouse log verify`, with partitions and offsets.
"""

import asyncio
import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from posthouse.model.errors import StorageFull
from posthouse.records.batch import LEADER_EPOCH, stamp
from posthouse.storage.files.commits.flusher import PARALLEL_BYTES
from posthouse.storage.files.journal.head import SLOT_DISTANCE
from posthouse.storage.files.journal.journal import head_path
from posthouse.storage.files.recovery.set_aside import SET_ASIDE
from posthouse.storage.files.verify import read_segment
from tests.alarms import alarms
from tests.directories import IN_MEMORY
from tests.storage.batches import append, make_topic, read_all
from tests.storage.faults import FaultyDisk
from tests.storage.files.journal_crash import (
    COMMITS,
    DAMAGES,
    JOURNAL_BYTES,
    Crash,
    as_older_version,
    build,
    check_kept,
    cut_from,
    everything,
    findings,
    flip_head,
    flip_last,
    served,
    zero_last,
)
from tests.storage.stores import crash_copy, opened


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """In memory: hundreds of copies are opened."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as name:
        yield Path(name)


@pytest.fixture
def copies(place: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=place) as name:
        yield Path(name)


@pytest.fixture(scope="module", params=["stream", "queue", "os"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=[0, 3], ids=["no-checkpoint", "checkpoint"])
def crash(request: pytest.FixtureRequest, place: Path, kind: str) -> Crash:
    return asyncio.run(build(place / f"{kind}-{request.param}", kind, request.param))


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_from_every_frame_on(
    crash: Crash,
    copies: Path,
    damage: Callable[[Crash, int], None],
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for count in range(1, len(crash.frames) + 1):
        copy = crash.copied(copies / str(count))
        damage(copy, count)
        # A power cut takes frames without a sync, which hold no puts. It does not shorten a file.
        has_lost_commits = kind != "os" or damage is cut_from
        await check_kept(copy, count, caplog, has_lost_commits=has_lost_commits)


def empty_file(crash: Crash) -> None:
    crash.journal.write_bytes(b"")


def delete_file(crash: Crash) -> None:
    crash.journal.unlink()


def rename_file(crash: Crash) -> None:
    crash.journal.rename(crash.journal.with_name(f"{1:020d}-{'ab' * 8}.wal"))


def zero_file(crash: Crash) -> None:
    crash.journal.write_bytes(bytes(JOURNAL_BYTES))


def delete_directory(crash: Crash) -> None:
    shutil.rmtree(crash.data / "journal")


def delete_directory_and_head(crash: Crash) -> None:
    shutil.rmtree(crash.data / "journal")
    Path(head_path(str(crash.data / "journal"))).unlink()


@pytest.mark.parametrize(
    "damage",
    [empty_file, delete_file, rename_file, zero_file, delete_directory, delete_directory_and_head],
)
async def test_a_journal_of_which_nothing_is_left(
    crash: Crash,
    copies: Path,
    damage: Callable[[Crash], None],
    kind: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    copy = crash.copied(copies / "copy")
    damage(copy)
    has_lost_commits = kind != "os" or damage is not zero_file
    await check_kept(copy, len(crash.frames), caplog, has_lost_commits=has_lost_commits)


# What is no damage


@pytest.fixture(scope="module")
def stream(place: Path) -> Crash:
    return asyncio.run(build(place / "stream", "stream", 0))


async def in_flight(crash: Crash) -> None:
    """The broker died with one more commit under way: in the segments, and as half a frame."""
    first, end = crash.frames[0]
    content = crash.journal.read_bytes()
    behind = crash.frames[-1][1]
    torn = content[first : (first + end) // 2]
    crash.journal.write_bytes(content[:behind] + torn + content[behind + len(torn) :])
    for index in (0, 1):
        partition = crash.topic.partition(index)
        record = append(partition, b"never acknowledged")
        stamp(record.batch, crash.acked[partition], LEADER_EPOCH)
        last = sorted((crash.data / "topics" / crash.topic.id.hex()).glob(f"{index}-*.log"))[-1]
        with last.open("ab") as segment:
            segment.write(record.batch)


async def test_the_frame_that_was_being_written_is_cut_without_a_word(
    stream: Crash, copies: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = stream.copied(copies / "copy")
    await in_flight(copy)
    assert not findings(copy.data)
    async with opened(copy.data, journal_bytes=JOURNAL_BYTES) as storage:
        assert await served(storage, copy) == everything(copy)
        assert not storage.has_lost_commits
    assert not alarms(caplog)
    assert not (copy.data / SET_ASIDE).exists()


async def test_one_slot_of_the_head_is_enough(
    stream: Crash, copies: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for slot in (0, SLOT_DISTANCE):
        copy = stream.copied(copies / str(slot))
        flip_head(copy, slot)
        assert not findings(copy.data)
        zero_last(copy, 3)
        await check_kept(copy, 3, caplog)


async def test_nothing_is_missing_after_a_start_without_space_for_a_journal(
    stream: Crash, copies: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its files go with the checkpoint, and no new one is there when the broker dies."""
    copy = stream.copied(copies / "copy")
    disk = FaultyDisk()
    disk.fail("allocate", number=errno.ENOSPC, for_ever=True)
    async with opened(copy.data, disk=disk, journal_bytes=JOURNAL_BYTES) as storage:
        crashed = await crash_copy(storage, copies / "crashed")
    assert not list((crashed / "journal").glob("*.wal"))
    caplog.clear()
    assert not findings(crashed)
    async with opened(crashed, journal_bytes=JOURNAL_BYTES) as storage:
        assert await served(storage, copy) == everything(copy)
    assert not alarms(caplog)


async def test_a_frame_that_was_taken_back_is_not_missed(
    copies: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyDisk()
    topic = make_topic(max_message_bytes="5000000")
    async with opened(copies / "data", disk=disk, journal_bytes=4 * 1024 * 1024) as storage:
        await storage.create_topics([topic])
        await storage.commit([append(topic.partition(0), b"first")])
        disk.fail("write", "*.log", errno.ENOSPC)
        with pytest.raises(StorageFull):
            await storage.commit([append(topic.partition(0), b"x" * (2 * PARALLEL_BYTES))])
        copy = await crash_copy(storage, copies / "copy")
    caplog.clear()
    assert not findings(copy)
    async with opened(copy) as storage:
        assert await read_all(storage, topic.partition(0)) == {0: b"first"}
    assert not alarms(caplog)


# What cannot be told


async def test_without_a_head_what_lies_behind_the_journal_is_set_aside(
    stream: Crash, copies: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = stream.copied(copies / "copy")
    flip_head(copy, 0, SLOT_DISTANCE)
    zero_last(copy, 3)
    head, *tails = findings(copy.data)
    assert head.path.endswith("journal.head") and head.is_damage
    assert {(each.first_offset, each.next_offset) for each in tails} >= {(3, 4), (2, 4)}
    caplog.clear()
    async with opened(copy.data, journal_bytes=JOURNAL_BYTES) as storage:
        for index, kept in ((0, 3), (1, 2)):
            assert set(await read_all(storage, copy.topic.partition(index))) == set(range(kept))
            assert f"orders-{index}: offsets {kept} to 3 lie behind the journal's end" in caplog.text
        assert storage.has_lost_commits, "what these commits put may be lost"
    assert "journal.head is missing or damaged" in caplog.text
    aside = sorted((copy.data / SET_ASIDE).iterdir())
    offsets = [step.header.base_offset for path in aside for step in read_segment(path) if step.header]
    assert sorted(offsets) == [2, 3, 3]


async def test_a_directory_of_an_older_version(
    stream: Crash, copies: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = stream.copied(copies / "whole")
    as_older_version(whole)
    assert not findings(whole.data)
    async with opened(whole.data, journal_bytes=JOURNAL_BYTES) as storage:
        assert await served(storage, whole) == everything(whole)
        await storage.commit([append(whole.topic.partition(0), b"next")])
        with_head = await crash_copy(storage, copies / "with-head")
    assert not alarms(caplog) and Path(head_path(str(with_head / "journal"))).exists()


async def test_an_older_directory_with_something_behind_the_journal(
    stream: Crash, copies: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The frame that was being written, or damage: it is set aside, and named."""
    copy = stream.copied(copies / "copy")
    as_older_version(copy)
    await in_flight(copy)
    assert all(each.is_damage and "sets these batches aside" in each.problem for each in findings(copy.data))
    async with opened(copy.data, journal_bytes=JOURNAL_BYTES) as storage:
        assert await served(storage, copy) == everything(copy)
    assert "orders-1: offsets 4 to 4 lie behind the journal's end" in caplog.text
    assert len(list((copy.data / SET_ASIDE).iterdir())) == 2


@pytest.mark.parametrize("damage", [flip_last, empty_file, delete_file, delete_directory])
async def test_an_older_directory_whose_journal_is_damaged(
    stream: Crash, copies: Path, damage: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    copy = stream.copied(copies / "copy")
    as_older_version(copy)
    if damage is flip_last:
        damage(copy, 3)
    else:
        damage(copy)
    await check_kept(copy, 3 if damage is flip_last else COMMITS, caplog)


async def test_a_segment_that_is_damaged_too_is_named_and_set_aside(
    stream: Crash, copies: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where neither journal nor segment has a batch, it is lost: but never in silence."""
    copy = stream.copied(copies / "copy")
    zero_last(copy, 3)
    last = sorted((copy.data / "topics" / copy.topic.id.hex()).glob("1-*.log"))[-1]
    content = bytearray(last.read_bytes())
    content[-10] ^= 1
    last.write_bytes(content)
    found = [each for each in findings(copy.data) if each.path == str(last)]
    assert any(each.is_damage and each.first_offset == 3 for each in found)
    caplog.clear()
    async with opened(copy.data, journal_bytes=JOURNAL_BYTES) as storage:
        assert set(await read_all(storage, copy.topic.partition(1))) == {0, 1, 2}
    assert "orders-1: offsets from 3 on may be lost" in caplog.text
    [aside] = (copy.data / SET_ASIDE).iterdir()
    assert str(aside) in caplog.text and aside.read_bytes() == content[-aside.stat().st_size :]
