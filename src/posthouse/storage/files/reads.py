"""Reading partitions. Bytes that are in memory and already verified are read on the event loop. All other
bytes are read on a worker thread: they must be fetched from the device or verified."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from posthouse.model.errors import (
    CorruptBatch,
    DataDamaged,
    OffsetOutOfRange,
    PosthouseError,
    RecordTooLarge,
    StorageClosed,
    Unavailable,
)
from posthouse.records.batch import DAMAGE_BIT, HEADER_SIZE, iter_headers, parse_header
from posthouse.records.record import iter_records
from posthouse.records.spans import filler
from posthouse.storage.bounds import Slice, TimestampedOffset
from posthouse.storage.files.segments.header import index_seed
from posthouse.storage.files.segments.index import SparseIndex, decode_blocks
from posthouse.storage.files.segments.partition_log import PartitionLog
from posthouse.storage.files.segments.reader import (
    Checked,
    Reader,
    build_index,
    header_at,
    read_checked,
    walk,
)
from posthouse.storage.files.segments.segment import Damage, Segment
from posthouse.storage.files.system.disk import Disk
from posthouse.storage.files.system.open_files import OpenFiles
from posthouse.storage.files.system.workers import Workers

log = logging.getLogger(__name__)

T = TypeVar("T")

_RECORDS_AT_ONCE = 1000


class Reads:
    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        on_stale_index: Callable[[PartitionLog], None],
        workers: Workers,
    ) -> None:
        self._disk = disk
        self._files = files
        self._on_stale_index = on_stale_index
        self._closed = False
        self._workers = workers.pool("posthouse-reader", 4)

    def close(self) -> None:
        """Wait for running reads; reads that continue later raise StorageClosed."""
        self._closed = True
        self._workers.shutdown()

    async def read(
        self, owner: PartitionLog, offset: int, max_bytes: int, at_least_one: bool, stable_only: bool
    ) -> Slice:
        stable = owner.bounds.stable
        if stable_only and owner.start <= stable <= offset <= owner.end and stable < owner.end:
            return Slice(b"", owner.bounds)
        found = await self._read(owner, offset, max_bytes, at_least_one, stable_only)
        # Checked after the read: a transaction may have begun meanwhile.
        if stable_only and found.bounds.stable < found.bounds.end:
            return Slice(_below(found.data, found.bounds.stable), found.bounds)
        return found

    async def _read(
        self, owner: PartitionLog, wanted: int, max_bytes: int, at_least_one: bool, stable_only: bool
    ) -> Slice:
        offset = wanted
        while True:
            if not owner.start <= offset <= owner.end:
                raise OffsetOutOfRange(f"offset {offset} is outside {owner.start} to {owner.end}")
            if offset == owner.end or not owner.segments:
                return _past_damage(owner, wanted, stable_only=stable_only)
            segment = owner.segments[owner.segment_number(offset)]
            segment.was_read = True
            if segment.misplaced:
                raise DataDamaged(segment.misplaced, owner.end_offset_of(segment))
            data = self._read_now(segment, offset, max_bytes, at_least_one)
            if data is not None:
                return Slice(data, owner.bounds)
            checked = await self._read_checked(owner, segment, offset, max_bytes, at_least_one)
            if checked is None:
                continue
            if not checked.is_last:
                return Slice(checked.data, owner.bounds)
            offset = max(offset, checked.end_offset)

    def _read_now(
        self, segment: Segment, offset: int, max_bytes: int, at_least_one: bool
    ) -> bytearray | memoryview | None:
        """The result if the bytes are in memory and verified, else None."""
        index = segment.index
        if not index.is_complete:
            return None
        first = index.position_of(offset)
        limit = first + max_bytes
        end = segment.size if limit >= segment.size else index.boundary_before(limit)
        if not segment.is_checked(first, max(end, first + 1)):
            return None
        try:
            file = self._files.acquire(segment.path, wait=False)
        except OSError:
            return None
        try:
            if end <= first:
                return self._read_one_now(file.handle, first, segment.size, offset, max_bytes, at_least_one)
            data = self._disk.read_now(file.handle, end - first, first)
        except OSError:
            return None
        finally:
            self._files.release(file)
        return None if data is None else _from_offset(data, offset)

    def _read_one_now(
        self, handle: int, position: int, size: int, offset: int, max_bytes: int, at_least_one: bool
    ) -> bytearray | None:
        """The one batch that holds `offset`, if the index has no batch boundary within the limit."""
        while position < size:
            start = self._disk.read_now(handle, HEADER_SIZE, position)
            if start is None:
                return None
            header = header_at(start, 0)
            if header is None:
                return None
            if header.next_offset > offset:
                if header.length > max_bytes and not at_least_one:
                    return bytearray()
                return self._disk.read_now(handle, header.length, position)
            position += header.length
        return None

    async def _read_checked(
        self, owner: PartitionLog, segment: Segment, offset: int, max_bytes: int, at_least_one: bool
    ) -> Checked | None:
        """Read and verify on a worker thread; None if the segment was removed meanwhile."""
        await self._complete_index(owner, segment)
        if not owner.has(segment):
            return None
        start = segment.index.position_of(offset)
        start_offset = segment.index.offset_at(start, segment.base_offset)
        end = segment.size
        end_offset = owner.end_offset_of(segment)

        def work(read: Reader) -> Checked:
            return read_checked(
                read,
                start,
                offset,
                max_bytes,
                at_least_one,
                base_offset=start_offset,
                end=end,
                end_offset=end_offset,
            )

        checked = await self._in_worker(segment, work)
        if not owner.has(segment):
            return None
        if checked is None:
            self._report(owner, segment, [Damage(0, end, segment.base_offset, end_offset)])
            return Checked(is_last=True, end_offset=end_offset)
        self._report(owner, segment, checked.damage)
        if len(checked.data):
            segment.checked(checked.position, checked.position + len(checked.data))
        return checked

    async def find_timestamp(self, owner: PartitionLog, timestamp: int) -> TimestampedOffset | None:
        for segment in list(owner.segments):
            if segment.max_timestamp < timestamp:
                continue
            found = await self._find_in(owner, segment, timestamp)
            if found is not None:
                return found
            if not owner.has(segment):  # compaction may have replaced the segment: look again
                return await self.find_timestamp(owner, timestamp)
        return None

    async def find_max_timestamp(self, owner: PartitionLog) -> TimestampedOffset | None:
        best: TimestampedOffset | None = None
        for segment in sorted(owner.segments, key=lambda each: -each.max_timestamp):
            if best is not None and segment.max_timestamp <= best.timestamp:
                break
            found = await self._find_in(owner, segment, segment.max_timestamp)
            if found is None:
                # The record with the maximum was trimmed: search the remaining records.
                found = await self._find_in(owner, segment, None)
            if not owner.has(segment):
                return await self.find_max_timestamp(owner)
            if found is not None and (best is None or found.timestamp > best.timestamp):
                best = found
        return best

    async def _find_in(
        self, owner: PartitionLog, segment: Segment, timestamp: int | None
    ) -> TimestampedOffset | None:
        """The first record of a segment at or after `timestamp`; with None the record with the latest
        timestamp."""
        if segment.misplaced:
            raise DataDamaged(segment.misplaced)
        await self._complete_index(owner, segment)
        if not owner.has(segment):
            return None
        start = 0 if timestamp is None else segment.index.position_of_time(timestamp)
        start_offset = segment.index.offset_at(start, segment.base_offset)
        end, end_offset, log_start = segment.size, owner.end_offset_of(segment), owner.start

        def work(read: Reader) -> TimestampedOffset | None:
            best: TimestampedOffset | None = None
            for step in walk(read, start, end, start_offset, end_offset):
                if step.header is None or step.header.last_offset < log_start:
                    continue
                least = best.timestamp + 1 if best else timestamp
                if least is not None and step.header.max_timestamp < least:
                    continue
                found = _first_record(owner.name, step.batch, least, log_start)
                if found is not None and timestamp is not None:
                    return found
                best = found or best
            return best

        return await self._in_worker(segment, work)

    async def _complete_index(self, owner: PartitionLog, segment: Segment) -> None:
        index = segment.index
        if index.is_complete or not owner.has(segment):
            return
        end, stored = index.start, segment.index_size
        interval = owner.config.index_interval_bytes
        end_offset = index.first_offset  # batches appended since then lie behind `end`
        if end_offset is None:
            end_offset = owner.end_offset_of(segment)

        def work(read: Reader) -> tuple[SparseIndex, int, bool, list[Damage]]:
            earlier, whole = self._load_index(segment, stored, interval, end)
            known = earlier.covered
            damage = build_index(read, earlier, end, segment.base_offset, end_offset)
            return earlier, known, whole, damage

        loaded = await self._in_worker(segment, work)
        if segment.index is not index:  # unloaded meanwhile
            await self._complete_index(owner, segment)
            return
        if loaded is None or index.is_complete or not owner.has(segment):
            return
        earlier, segment.indexed_to, whole, damage = loaded
        index.prepend(earlier)
        self._report(owner, segment, damage)
        if not whole:
            log.warning("%s: index %s was damaged or missing and is rebuilt", owner.name, segment.index_path)
            index.forget_stored()
            segment.index_size = segment.indexed_to = 0
        if segment.indexed_to < segment.size and segment is not owner.segments[-1]:
            segment.is_changed = True
            self._on_stale_index(owner)

    def _load_index(
        self, segment: Segment, size: int, interval: int, segment_size: int
    ) -> tuple[SparseIndex, bool]:
        if size == 0:
            return SparseIndex(interval), True
        try:
            handle = self._disk.open(segment.index_path)
        except FileNotFoundError:
            return SparseIndex(interval), False
        try:
            data = self._disk.read(handle, size, 0)
        finally:
            self._disk.close(handle)
        index, whole = decode_blocks(data, interval, segment_size, index_seed(segment))
        return (index, True) if whole and len(data) == size else (SparseIndex(interval), False)

    async def _in_worker(self, segment: Segment, work: Callable[[Reader], T]) -> T | None:
        """Run `work` with the segment's file on a worker thread; None if the file does not exist."""

        def run() -> T | None:
            try:
                file = self._files.acquire(segment.path)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise Unavailable(f"{segment.path} cannot be opened: {error}") from error
            try:
                return work(lambda size, position: self._disk.read(file.handle, size, position))
            except OSError as error:
                raise DataDamaged(f"{segment.path} cannot be read: {error}") from error
            finally:
                self._files.release(file)

        if self._closed:
            raise StorageClosed("the storage is closed")
        return await asyncio.get_running_loop().run_in_executor(self._workers, run)

    def _report(self, owner: PartitionLog, segment: Segment, damage: list[Damage]) -> None:
        for each in damage:
            if segment.add_damage(each):
                log.error(
                    "%s: %s is damaged: %s. Consumers skip these offsets, all others are served; "
                    "'posthouse log verify' shows all damage",
                    owner.name,
                    segment.path,
                    each,
                )


def _past_damage(owner: PartitionLog, wanted: int, *, stable_only: bool) -> Slice:
    """An empty batch that stands for damage from `wanted` on. With an empty answer the reader would retry
    forever."""
    bounds = owner.bounds
    end = bounds.stable if stable_only else bounds.end
    if owner.is_deleted or wanted >= end:
        return Slice(b"", bounds)
    return Slice(b"".join(filler(wanted, end, DAMAGE_BIT)), bounds)


def _below(data: bytes | bytearray | memoryview, offset: int) -> memoryview:
    """The data without the batches from `offset` on."""
    end = 0
    for position, header in iter_headers(data):
        if header.base_offset >= offset:
            break
        end = position + header.length
    return memoryview(data)[:end]


def _from_offset(data: bytearray, offset: int) -> bytearray | memoryview | None:
    """The data without the batches that end before `offset`."""
    position = 0
    while position < len(data):
        try:
            header = parse_header(data, position)
        except PosthouseError:
            return None
        if header.next_offset > offset:
            return memoryview(data)[position:] if position else data
        position += header.length
    return None


def _first_record(
    partition: str, batch: memoryview, timestamp: int | None, log_start: int
) -> TimestampedOffset | None:
    """The first record at or after `timestamp`; with None the latest record of the batch."""
    best: TimestampedOffset | None = None
    try:
        for number, record in enumerate(iter_records(batch)):
            if not number % _RECORDS_AT_ONCE:
                time.sleep(0)  # releases the interpreter: a small batch may hold millions of records
            if record.offset < log_start or (timestamp is not None and record.timestamp < timestamp):
                continue
            if timestamp is not None:
                return TimestampedOffset(record.offset, record.timestamp)
            if best is None or record.timestamp > best.timestamp:
                best = TimestampedOffset(record.offset, record.timestamp)
    except (CorruptBatch, RecordTooLarge) as error:
        # The checksum is right, so the producer sent invalid records.
        log.warning(
            "%s: batch at offset %d has records that cannot be decoded: %s",
            partition,
            parse_header(batch).base_offset,
            error,
        )
    return best
