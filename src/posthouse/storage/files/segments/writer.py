"""Writer of one compacted segment.

The file is `<partition>-<base offset>-<generation>.log.part` until all of it is synced; then `.part` is
removed. So a file with a segment's name is always whole, whether or not the catalog has it yet. A file that
ends in `.part` is left over from a crash and is ignored. Its header has the generation.

Invariant: batches follow each other without a gap, as in every segment. One batch without records fills each
gap of removed offsets. Checksums do not cover offsets: the sequence without gaps proves them.
"""

from posthouse.records.batch import BatchHeader, Readable, parse_header
from posthouse.records.spans import filler
from posthouse.storage.files.segments.header import identity_of
from posthouse.storage.files.segments.index import SparseIndex
from posthouse.storage.files.segments.reader import Reader
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.files.system.disk import Buffer, Disk, SyncFailed, synced

WRITE_BYTES = 1024 * 1024


class SegmentWriter:
    """All calls block. While the result equals its only source, the writer writes nothing."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        base_offset: int,
        interval: int,
        only: Reader | None,
        only_from: int = HEADER_BYTES,
    ) -> None:
        """`only_from` is the position of the first batch in `only`."""
        self._disk = disk
        self._path = path
        self._part = f"{path}.part"
        self._only = only
        """The only source, as long as the result equals it."""
        self._only_from = only_from
        self._handle: int | None = None
        self._buffers: list[Buffer] = []
        self._buffered = 0
        self._written = HEADER_BYTES
        self._next_offset = base_offset
        self._gap: list[BatchHeader] = []
        self.index = SparseIndex(interval)
        self.index_size = 0
        self.size = HEADER_BYTES

    def drop(self, header: BatchHeader) -> None:
        """Remove the batch."""
        self._gap = [header] if not self._gap else [self._gap[0], header]

    def keep(self, batch: Readable, header: BatchHeader, *, is_changed: bool) -> None:
        """Add the batch. `header` is that of the original batch."""
        self._close_gap(header.base_offset)
        if is_changed or self._only is None:
            self._write(batch)
            header = parse_header(batch) if is_changed else header
        self._count(header)
        self._next_offset = header.next_offset

    def finish(self, end_offset: int) -> bool:
        """Make the file durable under its name; False if nothing changed and no file was written."""
        self._close_gap(end_offset)
        if self._only is not None:
            return False
        handle = self._open()
        self._flush()
        synced(self._disk, handle)
        self._disk.close(handle)
        self._handle = None
        self._disk.rename(self._part, self._path)
        self._write_index()
        try:
            self._disk.sync_directory(self._path.rpartition("/")[0])
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SyncFailed(str(error)) from error
        return True

    def abandon(self) -> None:
        """Delete the file. Also after `finish`, if the file is not to be used."""
        if self._handle is not None:
            self._disk.close(self._handle)
            self._handle = None
        if self._only is None:
            for path in (self._part, self._path, self._index_path):
                self._disk.remove(path)

    def _close_gap(self, end_offset: int) -> None:
        if self._next_offset >= end_offset:
            self._gap.clear()
            return
        was_filler = len(self._gap) == 1 and self._gap[0].count == 0 and not self._gap[0].has_producer
        for batch in filler(self._next_offset, end_offset):
            if not was_filler or self._only is None:
                self._write(batch)
            self._count(parse_header(batch))
        self._gap.clear()
        self._next_offset = end_offset

    def _count(self, header: BatchHeader) -> None:
        self.index.add(header.base_offset, self.size, header.length, header.max_timestamp)
        self.size += header.length

    def _write(self, batch: Readable) -> None:
        if self._only is not None:
            self._copy_equal_part(self._only)
        self._buffers.append(batch)
        self._buffered += len(batch)
        if self._buffered >= WRITE_BYTES:
            self._flush()

    def _copy_equal_part(self, read: Reader) -> None:
        self._only = None
        shift = self._only_from - HEADER_BYTES
        for position in range(HEADER_BYTES, self.size, WRITE_BYTES):
            data = read(min(WRITE_BYTES, self.size - position), position + shift)
            self._disk.write(self._open(), [data], position)
        self._written = self.size

    def _flush(self) -> None:
        if self._buffers:
            self._disk.write(self._open(), self._buffers, self._written)
            self._written += self._buffered
            self._buffers = []
            self._buffered = 0

    def _open(self) -> int:
        if self._handle is None:
            self._handle = self._disk.open(self._part, create=True)
            self._disk.truncate(self._handle, 0)  # a crash may have left a file
            self._disk.write(self._handle, [identity_of(self._path).header()], 0)
        return self._handle

    @property
    def _index_path(self) -> str:
        return self._path.removesuffix(".log") + ".index"

    def _write_index(self) -> None:
        """Write the index without a sync: a damaged index is rebuilt."""
        block = self.index.take_block(identity_of(self._path).checksum)
        self.index_size = len(block)
        handle = self._disk.open(self._index_path, create=True)
        try:
            self._disk.write(handle, [block], 0)
            self._disk.truncate(handle, len(block))
        finally:
            self._disk.close(handle)
