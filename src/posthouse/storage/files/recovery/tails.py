"""The *tail* of a log: bytes of segment files behind its end, and what recovery does with them.

- The journal is whole: the tail belongs to the one frame that a crash can tear. It was never acknowledged,
  and recovery cuts it without a report.
- Frames or the catalog are missing: recovery keeps and reports the whole batches of the tail, so that damage
  does not cost records that the segments still have. It sets the rest aside (see `set_aside`) and reports it.
- Only frames that were acknowledged without a sync are missing: the same, in topics with durability `os`.
- There is no head, so the loss cannot be decided (an older version wrote the journal, or the head is
  damaged): recovery sets whole batches of the tail aside and reports them. It does not serve them, because a
  crash alone may leave such batches.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from posthouse.model.ids import TopicId
from posthouse.model.topic_config import Durability
from posthouse.storage.files.journal.reader import JournalEntry
from posthouse.storage.files.recovery.set_aside import set_aside
from posthouse.storage.files.segments.header import MISPLACED, Identity, SegmentStart, identity_of, read_start
from posthouse.storage.files.segments.logs import Logs
from posthouse.storage.files.segments.partition_log import PartitionLog
from posthouse.storage.files.segments.reader import Reader, walk
from posthouse.storage.files.segments.segment import (
    HEADER_BYTES,
    Segment,
    SegmentName,
    parse_segment_name,
    segment_name,
)
from posthouse.storage.files.system.disk import Disk, synced
from posthouse.storage.files.system.open_files import OpenFiles
from posthouse.storage.salvaged import decode_offset, encode_offset, salvaged_key
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

NO_END = 2**63 - 1


class Loss(Enum):
    """What is missing of the journal."""

    NOTHING = "nothing but the frame that a crash may tear"
    UNDECIDED = "perhaps frames at its end: there is no head to tell"
    UNSYNCED = "frames that were acknowledged without a sync"
    FRAMES = "frames that were acknowledged"


@dataclass(slots=True)
class Recovered:
    logs: Logs
    has_lost_commits: bool = False
    has_gap: bool = False
    """Frame numbers are missing: every start reports them until a later checkpoint."""
    next_frame: int = 1
    changed: dict[PartitionLog, None] = field(default_factory=dict)
    state: dict[int, dict[bytes, bytes]] = field(default_factory=dict)
    state_changes: dict[tuple[int, bytes], bytes | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def salvaged(self, owner: PartitionLog, first: int) -> None:
        """Batches from this offset on were kept though no frame proves them. Stored for the broker: what
        else their commits changed is lost, or never was."""
        key = salvaged_key(owner.id)
        values = self.state.setdefault(Space.SALVAGED, {})
        if key not in values or decode_offset(values[key]) > first:
            values[key] = self.state_changes[Space.SALVAGED, key] = encode_offset(first)

    def report(self, problem: str, *, level: int = logging.ERROR) -> None:
        log.log(level, "%s", problem)
        self.problems.append(problem)


class TailRecovery:
    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        directory: str,
        names: Mapping[TopicId, str],
        result: Recovered,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._files = files
        self._directory = directory
        self._names = names
        self._result = result
        self._now_ms = now_ms
        self._segment_files: dict[str, dict[int, dict[int, SegmentName]]] = {}
        self._doubts: list[tuple[PartitionLog, int, str, int]] = []

    def finish(self, owner: PartitionLog, loss: Loss, *, has_catalog: bool) -> None:
        if loss is Loss.UNSYNCED and owner.config.durability is not Durability.OS:
            loss = Loss.NOTHING
        if loss in (Loss.FRAMES, Loss.UNSYNCED):
            self._keep_tail(owner, logging.ERROR if loss is Loss.FRAMES else logging.WARNING)
        elif not has_catalog:
            self.take_in_files(owner)
        elif loss is Loss.UNDECIDED:
            self._set_tail_aside(owner)
        else:
            self._cut_tail(owner)

    def _keep_tail(self, owner: PartitionLog, level: int) -> None:
        first = owner.end
        self.take_in_files(owner)
        if owner.end > first:
            self._result.salvaged(owner, first)
            self.report_later(
                owner,
                owner.end,
                f"{self._name(owner)}: offsets {first} to {owner.end - 1} are kept: the frames that "
                "acknowledged them cannot be read, but their batches are in the segments",
                level,
            )
        segment = owner.segments[-1] if owner.segments else None
        if segment is not None and self._disk.size(segment.path) > segment.size:
            copy = self._set_aside(owner, segment.path, segment.size)
            self._result.report(
                f"{self._name(owner)}: offsets from {owner.end} on may be lost: {segment.path} has no whole "
                f"batches from byte {segment.size} on. What it had there is in {copy}",
                level=level,
            )

    def _set_tail_aside(self, owner: PartitionLog) -> None:
        """Set whole batches aside if it is unknown whether they were acknowledged."""
        for file in self._found_files(owner):
            newest = owner.segments[-1] if owner.segments else None
            position = newest.size if newest is not None and file.base_offset == newest.base_offset else 0
            if file.generation or (position == 0 and file.base_offset < owner.end):
                continue  # part of the log, or left by an earlier crash
            path = f"{owner.directory}/{segment_name(*file)}"
            first = owner.end if position else file.base_offset
            end = self._whole_to(path, position, first)
            if end is not None:
                copy = self._set_aside(owner, path, position)
                self._result.report(
                    f"{self._name(owner)}: offsets {first} to {end - 1} lie behind the journal's end. "
                    f"They were never acknowledged, or the journal is damaged. They are in {copy}: "
                    "look at them with 'posthouse log dump'"
                )
        self._cut_tail(owner)

    def _whole_to(self, path: str, position: int, first_offset: int) -> int | None:
        """The offset behind the whole batches from `position` on; None if there are none."""
        file = self._files.acquire(path)
        try:
            end = None
            for step in walk(
                _reader(self._disk, file.handle), position, self._disk.size(path), first_offset, NO_END
            ):
                end = end if step.header is None else step.header.next_offset
            return end
        finally:
            self._files.release(file)

    def _set_aside(self, owner: PartitionLog, path: str, position: int) -> str:
        return set_aside(self._disk, self._directory, owner, path, position)

    def _name(self, owner: PartitionLog) -> str:
        return f"{self._names.get(owner.id.topic, owner.id.topic.hex())}-{owner.id.index}"

    def take_in(self, owner: PartitionLog, segment: Segment, end: int, end_offset: int) -> None:
        """Add the batches between the segment's size and `end` to the log, as far as they are whole."""
        if self._disk.size(segment.path) < 0:
            self.report_later(owner, end_offset, f"{segment.path} is missing")
            return
        file = self._files.acquire(segment.path)
        try:
            read = _reader(self._disk, file.handle)
            if segment.size == 0 and segment.has_header and not any(read(HEADER_BYTES, 0)):
                # A power cut removed the header: such files are not synced before the checkpoint.
                self._disk.write(file.handle, [identity_of(segment.path).header()], 0)
            first_offset = owner.end if segment.size else segment.base_offset
            for step in walk(read, segment.size, end, first_offset, end_offset):
                if step.header is not None:
                    header = step.header
                    self._result.changed[owner] = None
                    owner.found(segment, step.position, step.batch, header, self._now_ms)
                elif step.damage is not None and step.damage.next_offset != NO_END:
                    segment.add_damage(step.damage)
                    problem = f"{segment.path} is damaged: {step.damage}"
                    self.report_later(owner, step.damage.next_offset, problem)
        finally:
            self._files.release(file)

    def take_in_files(self, owner: PartitionLog, before: JournalEntry | None = None) -> None:
        """Add whole batches of files behind the end of the log, up to `before` if given.

        Only after loss of frames or of the catalog. Otherwise these batches were never acknowledged, and a
        part of a commit must not become visible without the rest.
        """
        end_offset = NO_END if before is None else before.offset
        for file in self._found_files(owner):
            base_offset = file.base_offset
            if base_offset >= end_offset:
                break
            newest = owner.segments[-1].base_offset if owner.segments else -1
            if base_offset < newest or newest < base_offset < owner.end:
                continue  # part of the log already, or left by an earlier crash
            if owner.segments and base_offset > owner.end:
                problem = f"{self._name(owner)}: offsets {owner.end} to {base_offset - 1} are missing"
                self.report_later(owner, base_offset, problem)
            segment = self.segment(owner, base_offset, file.generation)
            end = self._disk.size(segment.path)
            if before is not None and before.segment == base_offset:
                end = min(end, before.position)
            self.take_in(owner, segment, end, end_offset)
            if segment.size == 0:
                owner.segments.remove(segment)

    def _found_files(self, owner: PartitionLog) -> list[SegmentName]:
        """The existing segment files, one for each base offset.

        Of several generations the highest is taken: its name proves that it is whole, and it holds every
        valid record of the earlier ones.
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
        """Truncate the tail: its bytes were never acknowledged.

        Synced, or a power cut could bring them back in place of later batches, acknowledged without a sync.
        """
        segment = owner.segments[-1] if owner.segments else None
        if segment is not None and self._disk.size(segment.path) > segment.size:
            file = self._files.acquire(segment.path)
            try:
                self._disk.truncate(file.handle, segment.size)
                synced(self._disk, file.handle)
            finally:
                self._files.release(file)

    def segment(
        self, owner: PartitionLog, base_offset: int, generation: int = 0, position: int = -1
    ) -> Segment:
        """`position` is that of a known batch in it, if any. Segments of older versions have a batch at 0."""
        for segment in reversed(owner.segments):
            if segment.base_offset == base_offset:
                return segment
        segment = owner.add_segment(base_offset, self._now_ms, generation)
        start = read_start(self._disk, segment.path)
        segment.has_header = position != 0 and not start.is_batch
        self._set_misplaced_aside(owner, segment, start)
        return segment

    def check_identity(self, owner: PartitionLog, segment: Segment) -> None:
        """Check the file's header. A file of another segment stays in place, and offsets of this segment
        cannot be read."""
        other = read_start(self._disk, segment.path).misplaced(segment.path, has_header=segment.has_header)
        if other is not None:
            segment.misplaced = (
                f"{self._name(owner)}: {segment.path} is not its segment but {self._whose(other)}: offsets "
                f"from {segment.base_offset} on are not served. Stop the broker and move the files back"
            )
            self._result.report(segment.misplaced)

    def _set_misplaced_aside(self, owner: PartitionLog, segment: Segment, start: SegmentStart) -> None:
        """Move a misplaced file away. The catalog does not have this segment yet: the journal has all of
        it."""
        other = start.misplaced(segment.path)
        if other is not None:
            self._disk.rename(segment.path, f"{segment.path}{MISPLACED}")
            self._result.report(
                f"{self._name(owner)}: {segment.path} was not its segment but {self._whose(other)}; "
                f"it is kept as {segment.path}{MISPLACED}"
            )

    def _whose(self, other: Identity | str) -> str:
        if isinstance(other, str):
            return other
        topic = self._names.get(other.partition.topic, "an unknown topic")
        return f"that of {topic}-{other.partition.index} ({other})"

    def report_later(
        self, owner: PartitionLog, next_offset: int, problem: str, level: int = logging.ERROR
    ) -> None:
        """Report the problem, unless a later trim in the journal removed those offsets."""
        self._doubts.append((owner, next_offset, problem, level))

    def report_doubts(self) -> None:
        for owner, next_offset, problem, level in self._doubts:
            if next_offset > owner.start:
                self._result.report(problem, level=level)


def _reader(disk: Disk, handle: int) -> Reader:
    def read(size: int, position: int) -> bytes:
        return disk.read(handle, size, position)

    return read
