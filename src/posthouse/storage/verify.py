"""Checking a data directory, and looking into one segment, without changing anything.

Works on the files of a stopped broker, a crashed one and a running one. What counts is what catalog and
journal promise: bytes behind that were never acknowledged, and a torn end of them is no damage. A running
broker goes on changing its files, so whatever looks wrong is looked at a second time with fresh promises.
"""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from posthouse.model.errors import DataDamaged, NotFound, PosthouseError
from posthouse.model.ids import PartitionId, TopicId
from posthouse.records.batch import HEADER_SIZE
from posthouse.storage.catalog_rows import TABLES, Contents, TopicRow, is_sound, load_contents
from posthouse.storage.disk import OsDisk
from posthouse.storage.index import Entry as IndexEntry
from posthouse.storage.index import decode_blocks
from posthouse.storage.journal import APPEND, TRIM, Entry, Gap, read_journal
from posthouse.storage.logs import topic_directory
from posthouse.storage.recovery import NO_END
from posthouse.storage.segment import Damage, parse_segment_name, segment_name
from posthouse.storage.segment_reader import Reader, header_at, walk
from posthouse.storage.segment_reader import Step as Step

_ATTEMPTS = 3
_PROGRESS_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it should be. Byte and offset ranges exclude their ends."""

    path: str
    problem: str
    position: int | None = None
    end: int | None = None
    first_offset: int | None = None
    next_offset: int | None = None
    is_damage: bool = True
    """Whether something is lost or wrong; otherwise it is only worth knowing."""


@dataclass(slots=True)
class Tally:
    """What was looked at so far."""

    topics: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    frames: int = 0


class _ReadOnlyDisk(OsDisk):
    def open(self, path: str, *, create: bool = False) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


@dataclass(slots=True)
class _Expected:
    """What is promised of one segment."""

    partition: PartitionId
    base_offset: int
    size: int = 0
    end_offset: int = NO_END
    """The first offset that the `size` bytes cannot hold."""
    index_size: int = 0
    tail: list[Entry] = field(default_factory=list)
    """What the journal says was written behind `size`, without the batches."""


@dataclass(slots=True)
class _Promises:
    """What catalog and journal say at one moment. Without a readable catalog, nothing is `known`."""

    known: bool
    topics: dict[TopicId, TopicRow]
    segments: dict[str, _Expected]
    starts: dict[PartitionId, int]
    findings: list[Finding]
    frames: int = 0
    clean: bool = False
    """The broker was stopped well: nothing changes any more."""


def read_segment(path: Path) -> Iterator[Step]:
    """Every batch of one segment file, and the stretches between that are none."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    disk = _ReadOnlyDisk()
    with _opened(disk, str(path)) as read:
        first, named = header_at(read(HEADER_SIZE, 0), 0), parse_segment_name(path.name)
        # Its name says more than bytes that may be damaged.
        base = named.base_offset if named else first.base_offset if first else 0
        yield from walk(read, 0, disk.size(str(path)), base, NO_END)


class Verification:
    """One pass over a data directory: iterate `findings` to the end, then look at `tally`."""

    def __init__(self, directory: Path, on_progress: Callable[[int], None] = lambda size: None) -> None:
        if not (directory / "catalog.sqlite").exists() and not (directory / "topics").is_dir():
            raise NotFound(
                f"{directory} is no data directory of a broker; "
                "name the one that was given to 'posthouse serve --data'"
            )
        self._directory = directory
        self._disk = _ReadOnlyDisk()
        self._on_progress = on_progress
        self._unreported = 0
        self.tally = Tally()

    @property
    def total_bytes(self) -> int:
        """How much there is to look at, for a progress bar."""
        return sum(path.stat().st_size for path in self._directory.glob("topics/*/*.log"))

    def findings(self) -> Iterator[Finding]:
        promises = self._promises()
        yield from promises.findings
        self.tally.frames = promises.frames
        self.tally.topics = len(promises.topics)
        paths = {str(path) for path in self._directory.glob("topics/*/*.log")} | set(promises.segments)
        for path in sorted(paths):
            found = list(self._check(path, promises, counting=True))
            if found and not promises.clean:
                # The broker may have trimmed, deleted or written it since the promises were read.
                promises = self._promises()
                found = list(self._check(path, promises, counting=False))
            yield from found
            self.tally.segments += 1
        self._progress(0, flush=True)

    def _promises(self) -> _Promises:
        """Read again where something seems wrong: a journal file may be given back while it is read."""
        for _ in range(_ATTEMPTS - 1):
            try:
                promises = self._read_promises()
            except FileNotFoundError:
                continue
            if not promises.findings or promises.clean:
                return promises
        return self._read_promises()

    def _read_promises(self) -> _Promises:
        findings: list[Finding] = []
        contents = _read_catalog(self._directory / "catalog.sqlite", findings)
        backup = _read_catalog(self._directory / "catalog.backup.sqlite", findings)
        source = contents or backup
        rows = [row for row in source.topics if not row.deleted] if source is not None else []
        promises = _Promises(contents is not None, {row.id: row for row in rows}, {}, {}, findings)
        if contents is not None:
            promises.clean = contents.clean
            self._expect(promises, contents)
        after = None if contents is None else contents.frame
        for found in read_journal(self._disk, str(self._directory / "journal"), after):
            if isinstance(found, Gap):
                findings.append(_gap_finding(found))
                continue
            promises.frames += 1
            for entry in found.entries:
                if isinstance(entry, Entry):
                    self._expect_entry(promises, entry._replace(batch=None))
        return promises

    def _expect(self, promises: _Promises, contents: Contents) -> None:
        ends = {row.partition: row.end for row in contents.partitions}
        promises.starts = {row.partition: row.start for row in contents.partitions}
        following: _Expected | None = None
        for row in reversed(contents.segments):
            if row.partition.topic not in promises.topics:
                continue
            same = following is not None and following.partition == row.partition
            end = following.base_offset if same and following else ends.get(row.partition, NO_END)
            following = _Expected(row.partition, row.base_offset, row.size, end, row.index_size)
            promises.segments[self._path(row.partition, row.base_offset, row.generation)] = following

    def _expect_entry(self, promises: _Promises, entry: Entry) -> None:
        partition = PartitionId(TopicId(entry.topic), entry.partition)
        if partition.topic not in promises.topics:
            return
        if entry.kind == TRIM:
            promises.starts[partition] = max(promises.starts.get(partition, 0), entry.offset)
            return
        path = self._path(partition, entry.segment)
        expected = promises.segments.setdefault(
            path, _Expected(partition, entry.segment, end_offset=entry.segment)
        )
        expected.tail.append(entry)

    def _path(self, partition: PartitionId, base_offset: int, generation: int = 0) -> str:
        directory = topic_directory(str(self._directory), partition.topic)
        return f"{directory}/{segment_name(partition.index, base_offset, generation)}"

    def _check(self, path: str, promises: _Promises, *, counting: bool) -> Iterator[Finding]:
        expected = promises.segments.get(path)
        topic = _topic_of(path)
        if promises.topics and topic not in promises.topics:
            if Path(path).exists():
                yield Finding(path=path, problem="it belongs to no topic", is_damage=False)
            return
        try:
            with _opened(self._disk, path) as read:
                if expected is not None:
                    yield from self._check_promised(path, read, expected, counting=counting)
                elif not promises.known:
                    yield from self._check_unpromised(path, read, counting=counting)
        except FileNotFoundError:
            yield from _missing(path, expected, promises)
        except OSError as error:
            yield Finding(path=path, problem=f"it cannot be read: {error.strerror}")

    def _check_promised(
        self, path: str, read: Reader, expected: _Expected, *, counting: bool
    ) -> Iterator[Finding]:
        file_size = self._disk.size(path)
        index, problems = self._read_index(path, expected)
        yield from problems
        entries = iter(index)
        entry = next(entries, None)
        for step in walk(read, 0, expected.size, expected.base_offset, expected.end_offset):
            self._count(step, counting)
            if step.damage is not None:
                yield _damage_finding(path, step.damage, file_size)
                while entry is not None and entry.position < step.damage.end:
                    entry = next(entries, None)  # it leads into damage that is known
            elif step.header is not None and entry is not None and entry.position <= step.position:
                if (entry.position, entry.base_offset) != (step.position, step.header.base_offset):
                    yield _index_finding(path, f"it leads to byte {entry.position}, where no batch begins")
                    entry = None
                else:
                    entry = next(entries, None)
        yield from self._check_tail(path, read, expected, file_size, counting=counting)

    def _check_tail(
        self, path: str, read: Reader, expected: _Expected, file_size: int, *, counting: bool
    ) -> Iterator[Finding]:
        tail = [entry for entry in expected.tail if entry.position + entry.length > expected.size]
        if not tail:
            return
        end = max(entry.position + entry.length for entry in tail)
        end_offset = max(entry.next_offset for entry in tail)
        for step in walk(read, expected.size, end, expected.end_offset, end_offset):
            self._count(step, counting)
            if step.damage is not None:
                yield _tail_finding(path, step.damage, tail, file_size)

    def _check_unpromised(self, path: str, read: Reader, *, counting: bool) -> Iterator[Finding]:
        """Without a catalog nobody knows how much counts: an end that is torn may never have counted."""
        file_size = self._disk.size(path)
        named = parse_segment_name(Path(path).name)
        for step in walk(read, 0, file_size, named.base_offset if named else 0, NO_END):
            self._count(step, counting)
            if step.damage is not None:
                yield _damage_finding(path, step.damage, file_size, is_damage=step.damage.end < file_size)

    def _read_index(self, path: str, expected: _Expected) -> tuple[list[IndexEntry], list[Finding]]:
        if not expected.index_size:
            return [], []
        index_path = path.removesuffix(".log") + ".index"
        try:
            data = Path(index_path).read_bytes()[: expected.index_size]
        except FileNotFoundError:
            return [], [_index_finding(path, "it is missing")]
        index, whole = decode_blocks(data, 0, expected.size)
        if len(data) < expected.index_size:
            return [], [_index_finding(path, f"it ends at byte {len(data)} of {expected.index_size}")]
        if not whole:
            return [], [_index_finding(path, f"it is damaged behind the first {len(index)} entries")]
        return index.entries(), []

    def _count(self, step: Step, counting: bool) -> None:
        if not counting:
            return
        if step.header is not None:
            self.tally.batches += 1
            self.tally.records += step.header.count
            self._progress(step.header.length)
        elif step.damage is not None:
            self._progress(step.damage.end - step.damage.position)

    def _progress(self, size: int, *, flush: bool = False) -> None:
        self.tally.bytes += size
        self._unreported += size
        if flush or self._unreported >= _PROGRESS_BYTES:
            self._on_progress(self._unreported)
            self._unreported = 0


def _topic_of(path: str) -> TopicId:
    try:
        return TopicId(bytes.fromhex(Path(path).parts[-2]))
    except ValueError:
        return TopicId(b"")  # of no topic


def _read_catalog(path: Path, findings: list[Finding]) -> Contents | None:
    """Its contents if all of it can be trusted; what cannot is added to `findings`."""
    if not path.exists():
        findings.append(Finding(path=str(path), problem="it is missing"))
        return None
    # Without a write-ahead log nobody has it open, and SQLite need not leave files of its own beside it.
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


def _missing(path: str, expected: _Expected | None, promises: _Promises) -> Iterator[Finding]:
    if expected is None:
        return
    end = max([expected.end_offset, *(entry.next_offset for entry in expected.tail)])
    if end <= promises.starts.get(expected.partition, 0):
        return  # trimmed, and the catalog does not know it yet
    first, following = expected.base_offset, None if end == NO_END else end
    copied = expected.size == 0 and all(entry.kind == APPEND for entry in expected.tail)
    problem = "it is missing" + ("; the next start writes it from the journal" if copied else "")
    yield Finding(path=path, problem=problem, first_offset=first, next_offset=following, is_damage=not copied)


def _damage_finding(path: str, damage: Damage, file_size: int, *, is_damage: bool = True) -> Finding:
    cut = damage.end > file_size
    return Finding(
        path=path,
        problem=f"it ends at byte {file_size}" if cut else "no whole batches are here",
        position=damage.position,
        end=damage.end,
        first_offset=damage.first_offset,
        next_offset=None if damage.next_offset == NO_END else damage.next_offset,
        is_damage=is_damage,
    )


def _tail_finding(path: str, damage: Damage, tail: list[Entry], file_size: int) -> Finding:
    """Bytes that were not yet checkpointed: most are in the journal too, and come back from there."""
    touched = [
        entry
        for entry in tail
        if entry.position < damage.end and damage.position < entry.position + entry.length
    ]
    finding = _damage_finding(path, damage, file_size)
    if any(entry.kind != APPEND for entry in touched):
        return finding
    problem = f"{finding.problem}; the next start writes them from the journal"
    return replace(finding, problem=problem, is_damage=False)


def _index_finding(path: str, problem: str) -> Finding:
    return Finding(path=path.removesuffix(".log") + ".index", problem=f"{problem}; reading rebuilds it")


def _gap_finding(gap: Gap) -> Finding:
    frames = f"frame {gap.first}" if gap.next == gap.first + 1 else f"frames {gap.first} to {gap.next - 1}"
    return Finding(path=gap.path, problem=f"{frames} cannot be read", end=gap.position)


@contextmanager
def _opened(disk: OsDisk, path: str) -> Iterator[Reader]:
    handle = disk.open(path)
    try:
        yield lambda size, position: disk.read(handle, size, position)
    finally:
        disk.close(handle)
