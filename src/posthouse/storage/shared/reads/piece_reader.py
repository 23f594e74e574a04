"""Whole batches with their offsets from runs and segments, each checked once while they stay in memory."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from posthouse.model.errors import CorruptBatch, DataDamaged, UnsupportedFormat
from posthouse.records.batch import HEADER_SIZE, iter_headers, parse_header, verify_crc
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.shared.readers import Readers
from posthouse.storage.shared.reads.pieces import read_inline, read_inline_runs
from posthouse.storage.shared.reads.runs import RunRow, SegmentRow, batches_of
from posthouse.storage.shared.reads.segment_indexes import SegmentIndexes

_WINDOW_BYTES = 1024 * 1024
"""Read at once from a segment."""
_BLOCKS_AHEAD = 2
_NOT_A_SEGMENT = -1


class ReadBlocks(Protocol):
    async def read(
        self, key: str, object_size: int, start: int, size: int, ahead: int = 0
    ) -> bytes | memoryview: ...

    def expect(self, key: str, object_size: int, start: int, size: int) -> None: ...


@dataclass(frozen=True, slots=True)
class CheckedBatches:
    """Checked batches of a log, without gaps."""

    data: bytes | bytearray | memoryview
    base: int
    """The first offset that it covers."""
    next: int
    """The offset behind it."""


class PieceReader:
    def __init__(
        self, readers: Readers, indexes: SegmentIndexes, blocks: ReadBlocks, *, cache_bytes: int
    ) -> None:
        self._readers = readers
        self._indexes = indexes
        self._blocks = blocks
        self._cache_bytes = cache_bytes
        self._cached_bytes = 0
        self._chunks: OrderedDict[tuple[int, int, int, int], CheckedBatches] = OrderedDict()

    async def chunk(self, log: SharedLog, piece: RunRow | SegmentRow, offset: int) -> CheckedBatches | None:
        """Batches from one that begins at or before `offset` on, among them the one that holds it.

        None if the piece has moved since it was found: then find it again.
        """
        if isinstance(piece, RunRow):
            return await self._run(piece)
        return await self._window(log, piece, max(offset, piece.base))

    async def prepare(self, log: SharedLog, pieces: Sequence[RunRow | SegmentRow]) -> None:
        """Begin to fetch the runs that lie in objects, all at the same time, and read the inline runs that
        are not in memory by one query."""
        wanted = [piece for piece in pieces if isinstance(piece, RunRow) and _key(piece) not in self._chunks]
        for run in wanted:
            if run.key is not None:
                self._blocks.expect(run.key, run.object_size or 0, run.pos, run.size)
        inline = [run for run in wanted if run.inline is not None]
        if len(inline) > 1:
            async with self._readers.connection(f"reading {log.name}") as connection:
                found = await read_inline_runs(connection, inline)
            for run, data in zip(inline, found, strict=True):
                if data is not None:
                    self._add(_key(run), CheckedBatches(batches_of(run, data), run.base, run.last + 1))

    async def _run(self, run: RunRow) -> CheckedBatches | None:
        key = _key(run)
        if (known := self._known(key)) is not None:
            return known
        data: bytes | memoryview = b""
        if run.inline is not None:
            async with self._readers.connection(f"reading {run.place}") as connection:
                found = await read_inline(connection, run)
            if found is None:
                return None
            data = found
        elif run.key is not None:
            data = await self._blocks.read(run.key, run.object_size or 0, run.pos, run.size)
        return self._add(key, CheckedBatches(batches_of(run, data), run.base, run.last + 1))

    async def _window(self, log: SharedLog, segment: SegmentRow, offset: int) -> CheckedBatches | None:
        index = await self._indexes.of(log, segment)
        if index is None:
            return None
        start = max(index.position_of(offset), HEADER_BYTES)
        key = (segment.log, segment.base, segment.generation, start)
        known = self._known(key)
        if known is not None and known.next > offset:
            return known
        size = _WINDOW_BYTES
        while True:
            size = min(size, segment.size - start)
            data = await self._blocks.read(
                segment.key, segment.object_size, segment.pos + start, size, ahead=_BLOCKS_AHEAD
            )
            whole, following = _whole(segment, data, start)
            if whole is not None and whole.next > offset:
                return self._add(key, whole)
            if size == segment.size - start:
                raise DataDamaged(
                    f"{log.name}: {segment.place} ends without offset {offset}", segment.last + 1
                )
            size = max(2 * size, following)

    def _known(self, key: tuple[int, int, int, int]) -> CheckedBatches | None:
        chunk = self._chunks.get(key)
        if chunk is not None:
            self._chunks.move_to_end(key)
        return chunk

    def _add(self, key: tuple[int, int, int, int], chunk: CheckedBatches) -> CheckedBatches:
        replaced = self._chunks.pop(key, None)
        self._cached_bytes += len(chunk.data) - (0 if replaced is None else len(replaced.data))
        self._chunks[key] = chunk
        while self._cached_bytes > self._cache_bytes and len(self._chunks) > 1:
            _, dropped = self._chunks.popitem(last=False)
            self._cached_bytes -= len(dropped.data)
        return chunk


def _key(run: RunRow) -> tuple[int, int, int, int]:
    return run.log, run.base, _NOT_A_SEGMENT, run.last


def _whole(segment: SegmentRow, data: bytes | memoryview, start: int) -> tuple[CheckedBatches | None, int]:
    """The whole batches at the beginning of the data, checked; and the bytes that the first of them needs."""
    base = following = -1
    end = next_offset = 0
    try:
        for position, header in iter_headers(data):
            if not verify_crc(data, position, header.length):
                raise DataDamaged(
                    f"{segment.place}: the batch at {start + position} does not match its checksum",
                    header.next_offset,
                )
            base = header.base_offset if base < 0 else base
            end, next_offset = position + header.length, header.next_offset
        if base < 0 and len(data) >= HEADER_SIZE:
            following = parse_header(data).length
    except (CorruptBatch, UnsupportedFormat) as error:
        raise DataDamaged(f"{segment.place} is damaged at {start + end}: {error}", segment.last + 1) from None
    if base < 0:
        return None, following
    # A copy: the chunk stays for long, and a part of a block would keep the whole block in memory.
    return CheckedBatches(bytes(memoryview(data)[:end]), base, next_offset), following
