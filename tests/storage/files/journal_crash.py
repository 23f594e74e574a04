"""A broker that was killed, the end of its journal, and damage to it."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers
from posthouse.records.references import iter_references
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.journal.journal import FRAME_HEADER, head_path, journal_files
from posthouse.storage.files.journal.reader import frames_in
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.files.verify import Finding, Verification
from posthouse.storage.operations import Put, Refer, Run
from posthouse.storage.salvaged import decode_offset, salvaged_key
from posthouse.storage.spaces import Space
from tests.alarms import alarms
from tests.storage.batches import append, make_topic, read_all
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
        salvaged = storage.take_state(Space.SALVAGED)
        for index in (0, 1):
            end = crash.acked[crash.topic.partition(index)]
            if lost[index] < end:
                assert decode_offset(salvaged[salvaged_key(crash.topic.partition(index))]) == lost[index]
                assert f"orders-{index}: offsets {lost[index]} to {end - 1} are kept" in caplog.text
        await storage.commit([append(crash.topic.partition(0), b"next")])
    caplog.clear()
    async with opened(crash.data, journal_bytes=JOURNAL_BYTES) as storage:
        assert not storage.has_lost_commits
        assert storage.bounds(crash.topic.partition(0)).end == crash.acked[crash.topic.partition(0)] + 1
    assert not alarms(caplog) and not findings(crash.data)


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
