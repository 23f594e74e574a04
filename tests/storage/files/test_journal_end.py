"""Damage at the end of the journal: nothing that was acknowledged goes without a word, wherever it is hit.

A broker acknowledges commits one by one and is killed. Then the end of its journal is damaged, from every
frame on. The batches lie whole in the segments, so they are kept; that frames are missing is said by the
broker and by `posthouse log verify`, with partitions and offsets.
"""

import asyncio
import errno
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from posthouse.model.errors import StorageFull
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.records.batch import LEADER_EPOCH, iter_headers, stamp
from posthouse.records.references import iter_references
from posthouse.storage.files.commits.flusher import PARALLEL_BYTES
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.journal.head import SLOT_DISTANCE
from posthouse.storage.files.journal.journal import FRAME_HEADER, head_path, journal_files
from posthouse.storage.files.journal.reader import frames_in
from posthouse.storage.files.recovery.set_aside import SET_ASIDE
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.files.verify import Finding, Verification, read_segment
from posthouse.storage.operations import Put, Refer, Run
from posthouse.storage.spaces import Space
from tests.alarms import alarms
from tests.directories import IN_MEMORY
from tests.storage.batches import append, make_topic, read_all
from tests.storage.faults import FaultyDisk
from tests.storage.stores import crash_copy, opened

COMMITS = 8
JOURNAL_BYTES = 16 * 1024


@dataclass(frozen=True)
class Crash:
    """What a broker left that was killed, and what it had acknowledged."""

    data: Path
    topic: Topic
    references: Topic | None
    acked: dict[PartitionId, int]
    """The end of each partition."""
    frames: list[tuple[int, int]] = field(default_factory=list)
    """First and last byte of each frame that is not checkpointed."""

    @property
    def journal(self) -> Path:
        [path] = (self.data / "journal").glob("*.wal")
        return path

    def copied(self, place: Path) -> "Crash":
        shutil.copytree(self.data, place)
        return Crash(place, self.topic, self.references, self.acked, self.frames)


async def build(place: Path, kind: str, checkpointed: int) -> Crash:
    """`checkpointed` of the commits are in the catalog when the broker dies."""
    topic = make_topic("orders", 2, segment_bytes="700", durability="os" if kind == "os" else "fsync")
    references = make_topic(":queue:00", 1, segment_bytes="500") if kind == "queue" else None
    acked: dict[PartitionId, int] = {}
    async with opened(place / "running", journal_bytes=JOURNAL_BYTES) as storage:
        await storage.create_topics([topic, *([references] if references else [])])
        for number in range(COMMITS):
            partition = topic.partition(number % 2)
            record = append(partition, b"%04d" % number)
            if references is None:
                await storage.commit([record])
            else:
                run = Run(partition, 0, 1, 4, append=record)
                settled = Put(Space.QUEUE_PROGRESS, b"lane", b"%d" % number)
                await storage.commit([record, Refer(references.partition(0), [run]), settled])
            if number + 1 == checkpointed:
                await storage.checkpoint()
        for each in (topic, references):
            for partition in each.partition_ids() if each else ():
                acked[partition] = storage.bounds(partition).end
        data = await crash_copy(storage, place / "crashed")
    frames = []
    [file] = journal_files(OsDisk(), str(data / "journal"))
    content = Path(file.path).read_bytes()
    for position, number, _ in frames_in(OsDisk(), file):
        if number > checkpointed:
            length = FRAME_HEADER.unpack_from(content, position)[3]
            frames.append((position, position + FRAME_HEADER.size + length))
    assert len(frames) == COMMITS - checkpointed
    return Crash(data, topic, references, acked, frames)


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


async def served(storage: FileStorage, crash: Crash) -> dict[PartitionId, set[int]]:
    found = {}
    for partition in crash.acked:
        if crash.references is not None and partition.topic == crash.references.id:
            found[partition] = await referred(storage, partition)
        else:
            found[partition] = set(await read_all(storage, partition))
    return found


async def referred(storage: FileStorage, partition: PartitionId) -> set[int]:
    """The positions of a reference log, each of which leads to a record that is there."""
    positions: set[int] = set()
    while len(positions) < storage.bounds(partition).end:
        part = await storage.read(partition, len(positions), 10_000)
        view = memoryview(part.data)
        for at, header in iter_headers(view):
            for position, run in iter_references(view[at : at + header.length], header):
                records = await read_all(storage, run.partition, run.first)
                assert run.first in records
                positions.add(position)
    return positions


def everything(crash: Crash) -> dict[PartitionId, set[int]]:
    return {partition: set(range(end)) for partition, end in crash.acked.items()}


def findings(data: Path) -> list[Finding]:
    return list(Verification(data).findings())


def flip_last(crash: Crash, count: int) -> None:
    content = bytearray(crash.journal.read_bytes())
    for first, end in crash.frames[-count:]:
        content[(first + FRAME_HEADER.size + end) // 2] ^= 0x10
    crash.journal.write_bytes(content)


def flip_headers(crash: Crash, count: int) -> None:
    content = bytearray(crash.journal.read_bytes())
    for first, _ in crash.frames[-count:]:
        content[first + 9] ^= 0x10
    crash.journal.write_bytes(content)


def zero_last(crash: Crash, count: int) -> None:
    content = bytearray(crash.journal.read_bytes())
    first, end = crash.frames[-count][0], crash.frames[-1][1]
    content[first:end] = bytes(end - first)
    crash.journal.write_bytes(content)


def cut_from(crash: Crash, count: int) -> None:
    with crash.journal.open("r+b") as file:
        file.truncate((crash.frames[-count][0] + crash.frames[-count][1]) // 2)


DAMAGES = [flip_last, flip_headers, zero_last, cut_from]


async def check_kept(
    crash: Crash, hit: int, caplog: pytest.LogCaptureFixture, *, has_lost_commits: bool = True
) -> None:
    """All is served, and what lies in the last `hit` frames is named by the broker and by `log verify`."""
    first = min(number for number in range(COMMITS - hit, COMMITS))
    before = findings(crash.data)
    assert any(each.is_damage for each in before)
    named = {(each.first_offset, each.next_offset) for each in before if each.path.endswith(".log")}
    lost = {index: (first + 1 - index) // 2 for index in (0, 1)}
    for index in (0, 1):
        if lost[index] < crash.acked[crash.topic.partition(index)]:
            # One stretch may go on in a second segment.
            assert lost[index] in {each for each, _ in named}, (index, named)
    caplog.clear()
    async with opened(crash.data, journal_bytes=JOURNAL_BYTES) as storage:
        assert await served(storage, crash) == everything(crash)
        assert storage.has_lost_commits == has_lost_commits
        await storage.forget_lost_commits()
        for index in (0, 1):
            end = crash.acked[crash.topic.partition(index)]
            if lost[index] < end:
                assert f"orders-{index}: offsets {lost[index]} to {end - 1} are kept" in caplog.text
        await storage.commit([append(crash.topic.partition(0), b"next")])
    caplog.clear()
    async with opened(crash.data, journal_bytes=JOURNAL_BYTES) as storage:
        assert not storage.has_lost_commits
        assert storage.bounds(crash.topic.partition(0)).end == crash.acked[crash.topic.partition(0)] + 1
    assert not alarms(caplog) and not findings(crash.data)


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


def flip_head(crash: Crash, *positions: int) -> None:
    path = Path(head_path(str(crash.data / "journal")))
    content = bytearray(path.read_bytes())
    for position in positions:
        content[position + 30] ^= 1
    path.write_bytes(content)


def as_older_version(crash: Crash) -> None:
    """Directories of versions before the head differ in nothing else."""
    Path(head_path(str(crash.data / "journal"))).unlink()
    with closing(sqlite3.connect(crash.data / "catalog.sqlite")) as catalog, catalog:
        catalog.execute("DELETE FROM meta WHERE key = 'journal_head'")


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
