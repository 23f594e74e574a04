"""Checkpoints: make segments durable and store their valid sizes in the catalog.

A checkpoint is a consistent cut: the state of the event loop right after one journal frame. Another thread
writes it while commits continue. A finished checkpoint makes the journal up to that frame unnecessary. A
failed checkpoint changes nothing: the next one covers the same changes.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from posthouse.model.ids import PartitionId
from posthouse.storage.files.catalog.catalog import Catalog
from posthouse.storage.files.catalog.producer_rows import rows
from posthouse.storage.files.catalog.rows import CatalogSnapshot, PartitionRow, SegmentRow
from posthouse.storage.files.segments.header import index_seed
from posthouse.storage.files.segments.partition_log import PartitionLog
from posthouse.storage.files.segments.segment import Segment
from posthouse.storage.files.system.disk import Disk, SyncFailed, synced
from posthouse.storage.files.system.open_files import OpenFiles
from posthouse.storage.producers import Changes
from posthouse.storage.spaces import Space

INDEX_STRIDE = 8 * 1024 * 1024
"""Growth of an open segment after which a checkpoint stores its index. With very many partitions, writing
every index at every checkpoint costs more than walking this many bytes once after a restart."""
MANY_FILES = 64
"""From this number of files on, one sync of the whole file system is cheaper than a sync per file."""


@dataclass(slots=True)
class _IndexBlock:
    segment_path: str
    path: str
    position: int
    data: bytes


@dataclass(slots=True)
class Checkpoint:
    """One checkpoint: `take` collects it on the event loop, `write` writes it on any thread."""

    snapshot: CatalogSnapshot
    logs: list[PartitionLog]
    segments: list[Segment]
    _producers: list[tuple[PartitionLog, Changes]] = field(default_factory=list)
    _blocks: list[_IndexBlock] = field(default_factory=list)

    def write(self, disk: Disk, files: OpenFiles, catalog: Catalog, directory: str) -> None:
        for owner, changes in self._producers:
            for key, value in rows(owner.id, changes).items():
                self.snapshot.state[Space.PRODUCERS.value, key] = value
        for block in self._blocks:
            _write_block(disk, block)
        if len(self.segments) >= MANY_FILES:
            _sync_everything(disk, directory)
        else:
            for segment in self.segments:
                _sync_segment(disk, files, segment)
        catalog.checkpoint(self.snapshot)

    def undo(self) -> None:
        """The write failed: mark everything in this checkpoint as changed again."""
        for owner, changes in self._producers:
            owner.producers.put_back(changes)
        for owner in self.logs:
            owner.was_trimmed = True
        for segment in self.segments:
            segment.is_changed = True
            segment.index.forget_stored()
            segment.index_size = segment.indexed_to = 0


def take(
    frame: int, logs: Collection[PartitionLog], state: dict[tuple[int, bytes], bytes | None]
) -> Checkpoint:
    checkpoint = Checkpoint(CatalogSnapshot(frame=frame, state=dict(state)), list(logs), [])
    snapshot = checkpoint.snapshot
    for owner in logs:
        snapshot.partitions.append(PartitionRow(owner.id, owner.start, owner.end))
        if owner.producers.is_changed:
            checkpoint._producers.append((owner, owner.producers.take_changes()))
        if owner.was_trimmed:
            first = owner.segments[0].base_offset if owner.segments else owner.end
            snapshot.first_segments[owner.id] = first
            owner.was_trimmed = False
        for segment in owner.segments:
            if segment.is_changed:
                _take_index(checkpoint, segment, is_closed=segment is not owner.segments[-1])
                _take_segment(checkpoint, owner, segment)
    return checkpoint


def _take_index(checkpoint: Checkpoint, segment: Segment, *, is_closed: bool) -> None:
    """Add the new entries of the segment's index, if they are due. An index that is not loaded has no new
    entries."""
    is_due = is_closed or segment.size - segment.indexed_to >= INDEX_STRIDE
    if is_due and segment.index.is_complete:
        position = segment.index_size
        block = segment.index.take_block(index_seed(segment))
        checkpoint._blocks.append(_IndexBlock(segment.path, segment.index_path, position, block))
        segment.index_size = position + len(block)
        segment.indexed_to = segment.size


def _take_segment(checkpoint: Checkpoint, owner: PartitionLog, segment: Segment) -> None:
    segment.is_changed = False
    checkpoint.segments.append(segment)
    checkpoint.snapshot.segments.append(segment_row(owner.id, segment))


def segment_row(partition: PartitionId, segment: Segment) -> SegmentRow:
    return SegmentRow(
        partition,
        segment.base_offset,
        segment.size,
        segment.max_timestamp,
        segment.created_ms,
        segment.index_size,
        segment.generation,
        segment.clean_to,
        segment.horizon,
        segment.has_header,
    )


def _write_block(disk: Disk, block: _IndexBlock) -> None:
    if disk.size(block.segment_path) < 0:
        return  # removed by retention or with its topic since the snapshot was taken
    handle = disk.open(block.path, create=True)
    try:
        disk.write(handle, [block.data], block.position)
        disk.truncate(handle, block.position + len(block.data))
    finally:
        disk.close(handle)


def _sync_segment(disk: Disk, files: OpenFiles, segment: Segment) -> None:
    try:
        file = files.acquire(segment.path)
    except FileNotFoundError:
        return  # removed by retention or with its topic since the snapshot was taken
    try:
        synced(disk, file.handle)
    finally:
        files.release(file)


def _sync_everything(disk: Disk, directory: str) -> None:
    try:
        disk.sync_everything(directory)
    except OSError as error:
        raise SyncFailed(str(error)) from error
