"""Read-only verification of a data directory, and inspection of one segment.

Works on the files of a stopped, crashed or running broker. Catalog and journal define the valid content.
Bytes behind it were never acknowledged, so a torn end is not damage. A running broker keeps changing its
files, so a problem is reported only after a second check with fresh promises.
"""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from posthouse.model.errors import NotFound
from posthouse.model.ids import PartitionId, TopicId
from posthouse.records.batch import HEADER_SIZE
from posthouse.storage.files.journal.journal import APPEND
from posthouse.storage.files.journal.reader import JournalEntry
from posthouse.storage.files.recovery.promises import Expected as Expected
from posthouse.storage.files.recovery.promises import Finding as Finding
from posthouse.storage.files.recovery.promises import PromiseReader, Promises
from posthouse.storage.files.recovery.tails import NO_END, Loss
from posthouse.storage.files.segments.header import Identity, decode_header, identity_of, start_of
from posthouse.storage.files.segments.index import Entry as IndexEntry
from posthouse.storage.files.segments.index import decode_blocks
from posthouse.storage.files.segments.reader import Reader, header_at, walk
from posthouse.storage.files.segments.reader import Step as Step
from posthouse.storage.files.segments.segment import HEADER_BYTES, Damage, parse_segment_name
from posthouse.storage.files.system.disk import OsDisk

_ATTEMPTS = 3
_PROGRESS_BYTES = 1024 * 1024


@dataclass(slots=True)
class Tally:
    """Counters of the checked files and bytes."""

    topics: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    frames: int = 0


class _ReadOnlyDisk(OsDisk):
    def open(self, path: str, *, create: bool = False) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def read_segment(path: Path) -> Iterator[Step]:
    """Every batch of one segment file, and the damaged ranges between them."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    disk = _ReadOnlyDisk()
    with _opened(disk, str(path)) as read:
        yield from walk(read, 0, disk.size(str(path)), _first_offset(path, read), NO_END)


def _first_offset(path: Path, read: Reader) -> int:
    """The first offset: from the file's name, which is more reliable than damaged bytes, else from its
    content."""
    named = parse_segment_name(path.name) or decode_header(read(HEADER_BYTES, 0))
    first = header_at(read(HEADER_SIZE, 0), 0)
    return named.base_offset if named else first.base_offset if first else 0


class Verification:
    """One pass over a data directory: iterate `findings` to the end, then read `tally`."""

    def __init__(self, directory: Path, on_progress: Callable[[int], None] = lambda size: None) -> None:
        if not (directory / "catalog.sqlite").exists() and not (directory / "topics").is_dir():
            raise NotFound(
                f"{directory} is no data directory of a broker; "
                "name the one that was given to 'posthouse serve --data'"
            )
        self._directory = directory
        self._disk = _ReadOnlyDisk()
        self._promise_reader = PromiseReader(self._disk, directory)
        self._on_progress = on_progress
        self._unreported = 0
        self.tally = Tally()

    @property
    def total_bytes(self) -> int:
        """Bytes to check, for a progress bar."""
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

    def _promises(self) -> Promises:
        """Read the promises, again if a problem appears: the broker may remove a journal file while it is
        read."""
        for _ in range(_ATTEMPTS - 1):
            try:
                promises = self._promise_reader.read()
            except FileNotFoundError:
                continue
            if not promises.findings or promises.clean:
                return promises
        return self._promise_reader.read()

    def _check(self, path: str, promises: Promises, *, counting: bool) -> Iterator[Finding]:
        expected = promises.segments.get(path)
        topic = _topic_of(path)
        if promises.topics and topic not in promises.topics:
            if Path(path).exists():
                yield Finding(path=path, problem="it belongs to no topic", is_damage=False)
            return
        try:
            with _opened(self._disk, path) as read:
                has_header = expected is not None and expected.has_header
                start = start_of(read(HEADER_SIZE, 0))
                other = start.misplaced(path, has_header=has_header)
                if counting and start.identity is not None and (expected is not None or not promises.known):
                    self._progress(HEADER_BYTES)
                if other is not None:
                    yield _misplaced_finding(path, other, expected, promises)
                elif expected is not None:
                    yield from self._check_promised(path, read, expected, counting=counting)
                    yield from self._check_behind(path, read, expected, promises)
                elif promises.known:
                    yield from self._check_behind(path, read, None, promises)
                elif not promises.known:
                    yield from self._check_unpromised(path, read, counting=counting)
        except FileNotFoundError:
            yield from _missing(path, expected, promises)
        except OSError as error:
            yield Finding(path=path, problem=f"it cannot be read: {error.strerror}")

    def _check_promised(
        self, path: str, read: Reader, expected: Expected, *, counting: bool
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
                    entry = next(entries, None)  # the index entry points into known damage
            elif step.header is not None and entry is not None and entry.position <= step.position:
                if (entry.position, entry.base_offset) != (step.position, step.header.base_offset):
                    yield _index_finding(path, f"it points to byte {entry.position}, where no batch begins")
                    entry = None
                else:
                    entry = next(entries, None)
        yield from self._check_tail(path, read, expected, file_size, counting=counting)

    def _check_tail(
        self, path: str, read: Reader, expected: Expected, file_size: int, *, counting: bool
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

    def _check_behind(
        self, path: str, read: Reader, expected: Expected | None, promises: Promises
    ) -> Iterator[Finding]:
        """Check bytes behind the promised end: if frames are missing, batches there may have been
        acknowledged."""
        named = parse_segment_name(Path(path).name)
        topic = _topic_of(path)
        if promises.loss is Loss.NOTHING or named is None or named.generation:
            return
        if expected is None:
            position, offset = 0, named.base_offset
            if offset < promises.ends.get(PartitionId(topic, named.partition), 0):
                return  # left by an earlier crash
        else:
            position = max([expected.size, *(entry.position + entry.length for entry in expected.tail)])
            offset = max([expected.end_offset, *(entry.next_offset for entry in expected.tail)])
        if offset == NO_END:
            return
        kept = promises.loss is Loss.FRAMES
        for found in _stretches(walk(read, position, self._disk.size(path), offset, NO_END)):
            problem = f"{promises.topics[topic].name}-{named.partition}: {_behind_problem(found, kept=kept)}"
            yield replace(found, path=path, problem=problem)

    def _check_unpromised(self, path: str, read: Reader, *, counting: bool) -> Iterator[Finding]:
        """Check a segment without a catalog. The valid size is unknown, so a torn end is not damage."""
        file_size = self._disk.size(path)
        named = parse_segment_name(Path(path).name)
        for step in walk(read, 0, file_size, named.base_offset if named else 0, NO_END):
            self._count(step, counting)
            if step.damage is not None:
                yield _damage_finding(path, step.damage, file_size, is_damage=step.damage.end < file_size)

    def _read_index(self, path: str, expected: Expected) -> tuple[list[IndexEntry], list[Finding]]:
        if not expected.index_size:
            return [], []
        index_path = path.removesuffix(".log") + ".index"
        try:
            data = Path(index_path).read_bytes()[: expected.index_size]
        except FileNotFoundError:
            return [], [_index_finding(path, "it is missing")]
        seed = identity_of(path).checksum if expected.has_header else 0
        index, whole = decode_blocks(data, 0, expected.size, seed)
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
        return TopicId(b"")  # belongs to no topic


def _missing(path: str, expected: Expected | None, promises: Promises) -> Iterator[Finding]:
    if expected is None:
        return
    end = max([expected.end_offset, *(entry.next_offset for entry in expected.tail)])
    if end <= promises.starts.get(expected.partition, 0):
        return  # trimmed, and the catalog does not have the trim yet
    first, following = expected.base_offset, None if end == NO_END else end
    copied = expected.size == 0 and all(entry.kind == APPEND for entry in expected.tail)
    problem = "it is missing" + ("; the next start writes it from the journal" if copied else "")
    yield Finding(path=path, problem=problem, first_offset=first, next_offset=following, is_damage=not copied)


def _stretches(steps: Iterator[Step]) -> Iterator[Finding]:
    """Merge consecutive batches into one finding."""
    first: Finding | None = None
    for step in steps:
        if step.header is None:
            if first is not None:
                yield first
            first = None
            assert step.damage is not None
            yield _damage_finding("", step.damage, step.damage.end)
            continue
        end = step.position + step.header.length
        if first is None:
            first = Finding(path="", problem="", position=step.position, first_offset=step.header.base_offset)
        first = replace(first, end=end, next_offset=step.header.next_offset)
    if first is not None:
        yield first


def _behind_problem(found: Finding, *, kept: bool) -> str:
    if found.problem:
        return f"{found.problem}, and frames that may speak of them cannot be read"
    if kept:
        return "frames that acknowledged these batches cannot be read; the next start keeps the batches"
    return "never acknowledged, or the journal's end is damaged; the next start sets these batches aside"


def _damage_finding(path: str, damage: Damage, file_size: int, *, is_damage: bool = True) -> Finding:
    cut = damage.end > file_size
    return Finding(
        path=path,
        problem=f"it ends at byte {file_size}" if cut else _what(damage),
        position=damage.position,
        end=damage.end,
        first_offset=damage.first_offset,
        next_offset=None if damage.next_offset == NO_END else damage.next_offset,
        is_damage=is_damage,
    )


def _what(damage: Damage) -> str:
    is_header = damage.position == 0 and damage.first_offset == damage.next_offset
    return "its header is damaged" if is_header else "no whole batches are here"


def _misplaced_finding(
    path: str, other: Identity | str, expected: Expected | None, promises: Promises
) -> Finding:
    """Another segment's file is in this segment's place, so all records of this segment are missing."""
    whose = str(other)
    if isinstance(other, Identity) and other.partition.topic in promises.topics:
        whose = f"{other} ({promises.topics[other.partition.topic].name}-{other.partition.index})"
    end = None if expected is None or expected.end_offset == NO_END else expected.end_offset
    return Finding(
        path=path,
        problem=f"it is another segment: {whose}; stop the broker and move it there",
        first_offset=None if expected is None else expected.base_offset,
        next_offset=end,
    )


def _tail_finding(path: str, damage: Damage, tail: list[JournalEntry], file_size: int) -> Finding:
    """Damage in bytes that are not checkpointed: the next start restores most of them from the journal."""
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


@contextmanager
def _opened(disk: OsDisk, path: str) -> Iterator[Reader]:
    handle = disk.open(path)
    try:
        yield lambda size, position: disk.read(handle, size, position)
    finally:
        disk.close(handle)
