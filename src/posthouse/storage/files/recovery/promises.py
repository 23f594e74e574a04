"""The content that catalog, journal and journal head promise for a data directory. Read-only."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from posthouse.model.errors import DataDamaged, PosthouseError
from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.files.catalog.rows import TABLES, Contents, TopicRow, is_sound, load_contents
from posthouse.storage.files.journal.head import read_head
from posthouse.storage.files.journal.journal import TRIM, head_path, journal_files
from posthouse.storage.files.journal.reader import Gap, JournalEntry, read_journal
from posthouse.storage.files.recovery.tails import NO_END, Loss
from posthouse.storage.files.segments.logs import topic_directory
from posthouse.storage.files.segments.segment import segment_name
from posthouse.storage.files.system.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A deviation from the expected content. Byte and offset ranges exclude their ends."""

    path: str
    problem: str
    position: int | None = None
    end: int | None = None
    first_offset: int | None = None
    next_offset: int | None = None
    is_damage: bool = True
    """Whether data is lost or wrong; otherwise the finding is only informative."""


@dataclass(slots=True)
class Expected:
    """The promised content of one segment."""

    partition: PartitionId
    base_offset: int
    size: int = 0
    end_offset: int = NO_END
    """The first offset behind the `size` bytes."""
    index_size: int = 0
    has_header: bool = True
    tail: list[JournalEntry] = field(default_factory=list)
    """Entries of the journal behind `size`, without the batches."""


@dataclass(slots=True)
class Promises:
    """The promises of catalog and journal at one moment. Without a readable catalog, `known` is false."""

    known: bool
    topics: dict[TopicId, TopicRow]
    segments: dict[str, Expected]
    starts: dict[PartitionId, int]
    ends: dict[PartitionId, int]
    findings: list[Finding]
    frames: int = 0
    loss: Loss = Loss.NOTHING
    """What is missing of the journal."""
    clean: bool = False
    """The broker was shut down cleanly, so the files do not change."""


class PromiseReader:
    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory

    def read(self) -> Promises:
        findings: list[Finding] = []
        contents = _read_catalog(self._directory / "catalog.sqlite", findings)
        backup = _read_catalog(self._directory / "catalog.backup.sqlite", findings)
        source = contents or backup
        rows = [row for row in source.topics if not row.deleted] if source is not None else []
        promises = Promises(contents is not None, {row.id: row for row in rows}, {}, {}, {}, findings)
        if contents is not None:
            promises.clean = contents.clean
            self._expect(promises, contents)
        self._read_journal(promises, contents)
        return promises

    def _read_journal(self, promises: Promises, contents: Contents | None) -> None:
        journal = str(self._directory / "journal")
        after = None if contents is None else contents.frame
        # Before the journal: a running broker continues, and the head must not be newer than the journal that
        # is read.
        head = None if promises.clean else read_head(self._disk, head_path(journal))
        if contents is not None and contents.was_started and not contents.clean and head is None:
            promises.findings += self._without_head(promises, contents)
        for found in read_journal(self._disk, journal, after, head):
            if isinstance(found, Gap):
                promises.findings.append(_gap_finding(found))
                promises.loss = Loss.FRAMES
                continue
            promises.frames += 1
            for entry in found.entries:
                if isinstance(entry, JournalEntry):
                    self._expect_entry(promises, entry._replace(batch=None))

    def _without_head(self, promises: Promises, contents: Contents) -> Iterator[Finding]:
        journal = str(self._directory / "journal")
        promises.loss = Loss.UNDECIDED
        if contents.has_head:
            problem = "it is missing or damaged: it is unknown whether the journal's end is whole"
            yield Finding(path=head_path(journal), problem=problem)
        if not journal_files(self._disk, journal):
            promises.loss = Loss.FRAMES
            first = (contents.frame or 0) + 1
            yield Finding(path=journal, problem=f"it is empty: frames from {first} on are missing")

    def _expect(self, promises: Promises, contents: Contents) -> None:
        ends = promises.ends = {row.partition: row.end for row in contents.partitions}
        promises.starts = {row.partition: row.start for row in contents.partitions}
        following: Expected | None = None
        for row in reversed(contents.segments):
            if row.partition.topic not in promises.topics:
                continue
            same = following is not None and following.partition == row.partition
            end = following.base_offset if same and following else ends.get(row.partition, NO_END)
            following = Expected(
                row.partition, row.base_offset, row.size, end, row.index_size, row.has_header
            )
            promises.segments[self._path(row.partition, row.base_offset, row.generation)] = following

    def _expect_entry(self, promises: Promises, entry: JournalEntry) -> None:
        partition = PartitionId(TopicId(entry.topic), entry.partition)
        if partition.topic not in promises.topics:
            return
        if entry.kind == TRIM:
            promises.starts[partition] = max(promises.starts.get(partition, 0), entry.offset)
            return
        path = self._path(partition, entry.segment)
        expected = promises.segments.setdefault(
            path,
            Expected(partition, entry.segment, end_offset=entry.segment, has_header=entry.position > 0),
        )
        expected.tail.append(entry)
        promises.ends[partition] = max(promises.ends.get(partition, 0), entry.next_offset)

    def _path(self, partition: PartitionId, base_offset: int, generation: int = 0) -> str:
        directory = topic_directory(str(self._directory), partition.topic)
        return f"{directory}/{segment_name(partition.index, base_offset, generation)}"


def _read_catalog(path: Path, findings: list[Finding]) -> Contents | None:
    """The contents of the catalog if all of it is valid; problems are added to `findings`."""
    if not path.exists():
        findings.append(Finding(path=str(path), problem="it is missing"))
        return None
    # Without a write-ahead log no process has the catalog open, and SQLite need not create files beside it.
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    problems: list[str] = []
    contents = None
    try:
        with closing(sqlite3.connect(f"file:{path}?{mode}", uri=True, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            problems += _wrong_rows(connection)
            if not problems:
                contents = load_contents(connection)
    except (sqlite3.DatabaseError, DataDamaged) as error:
        problems.append(f"SQLite cannot read it ({error})")
    except PosthouseError as error:
        problems.append(str(error))
    findings += [Finding(path=str(path), problem=problem) for problem in problems]
    return contents


def _wrong_rows(connection: sqlite3.Connection) -> Iterator[str]:
    for (verdict,) in connection.execute("PRAGMA integrity_check(10)"):
        if verdict != "ok":
            yield str(verdict)
    for table in TABLES:
        for *values, crc in connection.execute(f"SELECT * FROM {table}"):
            if not is_sound(table, values, crc):
                shown = ", ".join(each.hex() if isinstance(each, bytes) else str(each) for each in values[:2])
                yield f"a row of table {table} ({shown}) does not match its checksum"


def _gap_finding(gap: Gap) -> Finding:
    reason = f"{gap.reason}: " if gap.reason else ""
    where = f" behind byte {gap.position}" if gap.is_last else ""
    return Finding(
        path=gap.path,
        problem=f"{reason}{gap.frames}{where} cannot be read",
        end=None if gap.is_last else gap.position,
    )
