"""Bringing a data directory back to what was acknowledged.

Catalog first: it says how far every segment counted at the last checkpoint. Then the journal: what was
committed since. Then, after a crash, the bytes behind: whole batches that go on exactly where the log
ends are kept, because a damaged journal frame must not cost what the segment still has; the rest is cut.
The work is bounded by the journal, whatever the size of the log.
"""

import logging
from dataclasses import dataclass, field

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.storage.catalog import Contents
from posthouse.storage.disk import Disk
from posthouse.storage.journal import APPEND, TRIM, Entry, Frame, PutEntry, read_journal
from posthouse.storage.open_files import OpenFiles
from posthouse.storage.partition_log import PartitionLog
from posthouse.storage.segment import Segment, segment_name
from posthouse.storage.segment_reader import Reader, header_at, walk

log = logging.getLogger(__name__)

NO_END = 2**63 - 1


@dataclass(slots=True)
class Recovered:
    logs: dict[PartitionId, PartitionLog]
    next_frame: int = 1
    changed: set[PartitionLog] = field(default_factory=set)
    state: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
    state_changes: dict[tuple[int, bytes], bytes | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Recovery:
    def __init__(
        self, disk: Disk, files: OpenFiles, directory: str, topics: dict[TopicId, Topic], now_ms: int
    ) -> None:
        self._disk = disk
        self._files = files
        self._directory = directory
        self._now_ms = now_ms
        self._result = Recovered(empty_logs(directory, topics))
        self._fresh_directories: set[str] = set()

    def run(self, contents: Contents) -> Recovered:
        result = self._result
        result.state = contents.state
        if contents.frame is None:
            self._walk_everything()
        else:
            self._load(contents)
        result.next_frame = (contents.frame or 0) + 1
        for found in read_journal(self._disk, f"{self._directory}/journal", contents.frame):
            if isinstance(found, Frame):
                for entry in found.entries:
                    if isinstance(entry, PutEntry):
                        self._put(entry)
                    else:
                        self._replay(entry)
                result.next_frame = found.number + 1
            else:
                self._report(f"the journal is damaged: {found}")
        if not contents.clean:
            for partition_log in result.logs.values():
                self._adopt_tail(partition_log)
        for partition_log in result.logs.values():
            partition_log.next_offset = partition_log.end
        for directory in self._fresh_directories:
            self._disk.sync_directory(directory)
        return result

    def _load(self, contents: Contents) -> None:
        for partition_row in contents.partitions:
            owner = self._result.logs.get(partition_row.partition)
            if owner is not None:
                owner.start, owner.end = partition_row.start, partition_row.end
        for row in contents.segments:
            owner = self._result.logs.get(row.partition)
            if owner is None:
                continue
            segment = Segment(
                owner.directory,
                row.base_offset,
                created_ms=row.created_ms,
                interval=owner.config.index_interval_bytes,
                size=row.size,
                max_timestamp=row.max_timestamp,
                index_size=row.index_size,
            )
            owner.segments.append(segment)

    def _put(self, entry: PutEntry) -> None:
        values = self._result.state.setdefault(entry.space, {})
        if entry.value is None:
            values.pop(entry.key, None)
        else:
            values[entry.key] = entry.value
        self._result.state_changes[entry.space, entry.key] = entry.value

    def _walk_everything(self) -> None:
        """The catalog is lost: every segment is read from its first byte to its last."""
        for owner in self._result.logs.values():
            bases = sorted(
                int(name.removesuffix(".log"))
                for name in self._disk.names(owner.directory)
                if name.endswith(".log") and name.removesuffix(".log").isdigit()
            )
            if not bases:
                continue
            self._result.changed.add(owner)
            owner.start = owner.end = bases[0]
            for base_offset in bases:
                segment = owner.add_segment(base_offset, self._now_ms)
                owner.end = max(owner.end, base_offset)
                self._take_in(owner, segment, self._disk.size(segment.path), NO_END)

    def _replay(self, entry: Entry) -> None:
        owner = self._result.logs.get(PartitionId(TopicId(entry.topic), entry.partition))
        if owner is None:
            return  # its topic was deleted later
        self._result.changed.add(owner)
        if entry.kind == TRIM:
            for segment in owner.trim(entry.offset):
                self._disk.remove(segment.path)
                self._disk.remove(segment.index_path)
            return
        if entry.next_offset <= owner.end:
            return  # found already by walking the segments
        segment = self._segment(owner, entry.segment)
        if segment.size < entry.position:
            self._report(
                f"{segment.path}: the journal says nothing of offsets {owner.end} to {entry.offset - 1}"
            )
            self._take_in(owner, segment, entry.position, entry.offset)
            segment.size = entry.position
        if entry.kind == APPEND:
            self._write_again(owner, segment, entry)
        else:
            self._take_in(owner, segment, entry.position + entry.length, entry.next_offset)

    def _segment(self, owner: PartitionLog, base_offset: int) -> Segment:
        for segment in reversed(owner.segments):
            if segment.base_offset == base_offset:
                return segment
        return owner.add_segment(base_offset, self._now_ms)

    def _write_again(self, owner: PartitionLog, segment: Segment, entry: Entry) -> None:
        assert entry.batch is not None
        header = header_at(entry.batch, 0)
        assert header is not None, "the frame's checksum covers the batch"
        if entry.position == 0:
            self._fresh_directories.update(self._disk.make_directory(owner.directory), [owner.directory])
        file = self._files.acquire(segment.path, create=True)
        try:
            self._disk.write(file.handle, [entry.batch], entry.position)
        finally:
            self._files.release(file)
        segment.appended(entry.offset, entry.position, entry.length, header.max_timestamp)
        owner.end = entry.next_offset

    def _take_in(self, owner: PartitionLog, segment: Segment, end: int, end_offset: int) -> None:
        """Count the batches between the segment's size and `end` as far as they are whole."""
        if self._disk.size(segment.path) < 0:
            self._report(f"{segment.path} is missing")
            return
        file = self._files.acquire(segment.path)
        try:
            read = _reader(self._disk, file.handle)
            for step in walk(read, segment.size, end, owner.end, end_offset):
                if step.header is not None:
                    header = step.header
                    segment.appended(header.base_offset, step.position, header.length, header.max_timestamp)
                    owner.end = header.next_offset
                elif step.damage is not None and step.damage.next_offset != NO_END:
                    segment.add_damage(step.damage)
                    self._report(f"{segment.path} is damaged: {step.damage}")
        finally:
            self._files.release(file)

    def _adopt_tail(self, owner: PartitionLog) -> None:
        while True:
            segment = owner.segments[-1] if owner.segments else None
            if segment is not None and self._disk.size(segment.path) > segment.size:
                self._adopt(owner, segment)
            if segment is not None and segment.base_offset == owner.end:
                return
            if self._disk.size(f"{owner.directory}/{segment_name(owner.end)}") <= 0:
                return
            owner.add_segment(owner.end, self._now_ms)

    def _adopt(self, owner: PartitionLog, segment: Segment) -> None:
        end = self._disk.size(segment.path)
        file = self._files.acquire(segment.path)
        try:
            for step in walk(_reader(self._disk, file.handle), segment.size, end, owner.end, NO_END):
                header = step.header
                # A control batch is one part of a commit whose other parts may be missing.
                if header is None or header.base_offset != owner.end or header.is_control:
                    break
                segment.appended(header.base_offset, step.position, header.length, header.max_timestamp)
                owner.end = header.next_offset
                self._result.changed.add(owner)
            self._disk.truncate(file.handle, segment.size)
        finally:
            self._files.release(file)

    def _report(self, problem: str) -> None:
        log.error("%s", problem)
        self._result.problems.append(problem)


def empty_logs(directory: str, topics: dict[TopicId, Topic]) -> dict[PartitionId, PartitionLog]:
    return {
        id: PartitionLog(id, partition_directory(directory, id), topic.config)
        for topic in topics.values()
        for id in topic.partition_ids()
    }


def partition_directory(directory: str, id: PartitionId) -> str:
    return f"{directory}/topics/{id.topic.hex()}/{id.index}"


def _reader(disk: Disk, handle: int) -> Reader:
    def read(size: int, position: int) -> bytes:
        return disk.read(handle, size, position)

    return read
