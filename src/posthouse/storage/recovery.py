"""Bringing a data directory back to what was acknowledged.

Catalog first: it says how far every segment counted at the last checkpoint. Then the journal: what was
committed since. Bytes behind that were never acknowledged and are cut. Only if frames are missing or the
catalog is lost, whole batches that lie there are kept: damage must not cost what the segments still have.
The work is bounded by the journal, whatever the size of the log, unless the catalog is lost.
"""

import logging
from collections import defaultdict
from dataclasses import dataclass, field

from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.catalog_rows import Contents
from posthouse.storage.disk import Disk
from posthouse.storage.interface import Space
from posthouse.storage.journal import APPEND, TRIM, Entry, Frame, PutEntry, journal_files, read_journal
from posthouse.storage.leftovers import remove_leftovers
from posthouse.storage.logs import Logs
from posthouse.storage.open_files import OpenFiles
from posthouse.storage.partition_log import PartitionLog
from posthouse.storage.producers import ProducerTable, partition_of
from posthouse.storage.segment import Damage, Segment, SegmentName, parse_segment_name
from posthouse.storage.segment_reader import Reader, header_at, walk

log = logging.getLogger(__name__)

NO_END = 2**63 - 1


@dataclass(slots=True)
class Recovered:
    logs: Logs
    next_frame: int = 1
    changed: dict[PartitionLog, None] = field(default_factory=dict)
    state: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
    state_changes: dict[tuple[int, bytes], bytes | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Recovery:
    def __init__(self, disk: Disk, files: OpenFiles, directory: str, logs: Logs, now_ms: int) -> None:
        """`logs` are empty."""
        self._disk = disk
        self._files = files
        self._directory = directory
        self._now_ms = now_ms
        self._result = Recovered(logs)
        self._fresh_directories: dict[str, None] = {}
        self._segment_files: dict[str, dict[int, dict[int, SegmentName]]] = {}
        self._doubts: list[tuple[PartitionLog, int, str]] = []

    def run(self, contents: Contents) -> Recovered:
        result = self._result
        result.state = {space: each for space, each in contents.state.items() if space != Space.PRODUCERS}
        if contents.frame is None:
            self._walk_everything()
        else:
            self._load(contents)
            remove_leftovers(self._disk, result.logs.values())
        result.next_frame = (contents.frame or 0) + 1
        journal = f"{self._directory}/journal"
        is_damaged = contents.frame is None
        if contents.frame and not contents.clean and not journal_files(self._disk, journal):
            self._report(f"{journal} is empty: frames from {result.next_frame} on are missing")
            is_damaged = True
        for found in read_journal(self._disk, journal, contents.frame):
            if isinstance(found, Frame):
                for entry in found.entries:
                    if isinstance(entry, PutEntry):
                        self._put(entry)
                    else:
                        self._replay(entry)
                result.next_frame = found.number + 1
            else:
                self._report(f"the journal is damaged: {found}")
                result.next_frame = found.next
                is_damaged = True
        if not contents.clean:
            finish = self._take_in_files if is_damaged else self._cut_tail
            for partition_log in result.logs.values():
                finish(partition_log)
        if contents.frame is None:
            self._keep_bounds(contents)
        for partition_log in result.logs.values():
            partition_log.next_offset = partition_log.end
        for partition_log, next_offset, problem in self._doubts:
            if next_offset > partition_log.start:
                self._report(problem)
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
                row.partition.index,
                row.base_offset,
                created_ms=row.created_ms,
                interval=owner.config.index_interval_bytes,
                size=row.size,
                max_timestamp=row.max_timestamp,
                index_size=row.index_size,
                generation=row.generation,
                clean_to=row.clean_to,
                horizon=row.horizon,
            )
            owner.segments.append(segment)
        for key, value in contents.state.get(Space.PRODUCERS, {}).items():
            owner = self._result.logs.get(partition_of(key))
            if owner is not None:
                owner.producers = ProducerTable.decode(value)

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
            self._take_in_files(owner)
            if owner.segments:
                owner.start = owner.segments[0].base_offset

    def _keep_bounds(self, contents: Contents) -> None:
        """No offset is given twice and nothing that was let go comes back, though the catalog was lost."""
        for row in contents.partitions:
            owner = self._result.logs.get(row.partition)
            if owner is None:
                continue
            if row.end > owner.end:
                owner.end = row.end
                owner.add_segment(row.end, self._now_ms)
            self._trim(owner, row.start)

    def _trim(self, owner: PartitionLog, offset: int) -> None:
        self._result.changed[owner] = None
        for segment in owner.trim(offset):
            self._disk.remove(segment.path)
            self._disk.remove(segment.index_path)

    def _replay(self, entry: Entry) -> None:
        owner = self._result.logs.get(PartitionId(TopicId(entry.topic), entry.partition))
        if owner is None:
            return  # its topic was deleted later
        self._result.changed[owner] = None
        if entry.kind == TRIM:
            owner.end = max(owner.end, entry.offset)  # no trim goes beyond what there was
            self._trim(owner, entry.offset)
            return
        if entry.next_offset <= owner.end:
            return  # found already by walking the segments
        if entry.offset > owner.end:
            self._take_in_files(owner, before=entry)
        segment = self._segment(owner, entry.segment)
        if entry.offset > owner.end:
            problem = f"{segment.path}: offsets {owner.end} to {entry.offset - 1} are missing"
            self._report_later(owner, entry.offset, problem)
        if segment.generation:
            # Only when the catalog is lost and the end of what compaction wrote is damaged: places in the
            # file it was made from mean nothing in this one.
            self._report_later(owner, entry.next_offset, f"{segment.path}: its end is missing")
            owner.end = entry.next_offset
            return
        if segment.size < entry.position:
            segment.add_damage(Damage(segment.size, entry.position, owner.end, entry.offset))
            segment.size = segment.next_position = entry.position
        owner.end = max(owner.end, entry.offset)
        if entry.kind == APPEND:
            self._write_again(owner, segment, entry)
        else:
            self._take_in(owner, segment, entry.position + entry.length, entry.next_offset)

    def _segment(self, owner: PartitionLog, base_offset: int, generation: int = 0) -> Segment:
        for segment in reversed(owner.segments):
            if segment.base_offset == base_offset:
                return segment
        return owner.add_segment(base_offset, self._now_ms, generation)

    def _write_again(self, owner: PartitionLog, segment: Segment, entry: Entry) -> None:
        assert entry.batch is not None
        header = header_at(entry.batch, 0)
        assert header is not None, "the frame's checksum covers the batch"
        self._fresh_directories |= dict.fromkeys(self._disk.make_directory(owner.directory))
        if entry.position == 0:
            self._fresh_directories[owner.directory] = None
        file = self._files.acquire(segment.path, create=True)
        try:
            self._disk.write(file.handle, [entry.batch], entry.position)
        finally:
            self._files.release(file)
        owner.found(segment, entry.position, entry.batch, header, self._now_ms)

    def _take_in(self, owner: PartitionLog, segment: Segment, end: int, end_offset: int) -> None:
        """Count the batches between the segment's size and `end` as far as they are whole."""
        if self._disk.size(segment.path) < 0:
            self._report_later(owner, end_offset, f"{segment.path} is missing")
            return
        file = self._files.acquire(segment.path)
        try:
            read = _reader(self._disk, file.handle)
            first_offset = owner.end if segment.size else segment.base_offset
            for step in walk(read, segment.size, end, first_offset, end_offset):
                if step.header is not None:
                    header = step.header
                    self._result.changed[owner] = None
                    owner.found(segment, step.position, step.batch, header, self._now_ms)
                elif step.damage is not None and step.damage.next_offset != NO_END:
                    segment.add_damage(step.damage)
                    problem = f"{segment.path} is damaged: {step.damage}"
                    self._report_later(owner, step.damage.next_offset, problem)
        finally:
            self._files.release(file)

    def _take_in_files(self, owner: PartitionLog, before: Entry | None = None) -> None:
        """Count what lies in files behind the end of the log and is whole; up to `before`, if given.

        Only where frames or the catalog are lost: otherwise nothing was acknowledged of what lies there, and
        part of a commit must not appear without the rest of it.
        """
        end_offset = NO_END if before is None else before.offset
        for file in self._found_files(owner):
            base_offset = file.base_offset
            if base_offset >= end_offset:
                break
            newest = owner.segments[-1].base_offset if owner.segments else -1
            if base_offset < newest or newest < base_offset < owner.end:
                continue  # counted already, or left there by a crash long ago
            segment = self._segment(owner, base_offset, file.generation)
            end = self._disk.size(segment.path)
            if before is not None and before.segment == base_offset:
                end = min(end, before.position)
            self._take_in(owner, segment, end, end_offset)
            if segment.size == 0:
                owner.segments.remove(segment)

    def _found_files(self, owner: PartitionLog) -> list[SegmentName]:
        """The segment files that are there, one for each base offset.

        Of several generations the highest is taken: its name says that it is whole, and it holds all that
        counts of those before it.
        """
        if owner.directory not in self._segment_files:
            found: defaultdict[int, dict[int, SegmentName]] = defaultdict(dict)
            for name in self._disk.names(owner.directory):
                parsed = parse_segment_name(name)
                if parsed is not None:
                    known = found[parsed.partition].get(parsed.base_offset, parsed)
                    found[parsed.partition][parsed.base_offset] = max(known, parsed)
            self._segment_files[owner.directory] = found
        return sorted(self._segment_files[owner.directory].get(owner.id.index, {}).values())

    def _cut_tail(self, owner: PartitionLog) -> None:
        """Remove bytes that were never acknowledged."""
        segment = owner.segments[-1] if owner.segments else None
        if segment is not None and self._disk.size(segment.path) > segment.size:
            file = self._files.acquire(segment.path)
            try:
                self._disk.truncate(file.handle, segment.size)
            finally:
                self._files.release(file)

    def _report_later(self, owner: PartitionLog, next_offset: int, problem: str) -> None:
        """It is none if a trim that follows in the journal took those offsets away."""
        self._doubts.append((owner, next_offset, problem))

    def _report(self, problem: str) -> None:
        log.error("%s", problem)
        self._result.problems.append(problem)


def _reader(disk: Disk, handle: int) -> Reader:
    def read(size: int, position: int) -> bytes:
        return disk.read(handle, size, position)

    return read
