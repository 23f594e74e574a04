"""The index of all partitions of topics with `index.keys`: built in the background, asked by searches.

The task reads the log in pieces, one partition after the other, and makes entries on a thread. They stay in
memory until there is enough for a file. A small file before them is joined with them, so that their number
grows slowly. The task rests in proportion to its work.

Nothing here is the truth. At the start the newest file of a partition is compared with the log, which may
have lost its end in a power cut; files of what the log does not have are deleted, durably, before the log can
be written to again. Files of records that were acknowledged before they were on disk (durability=os) are
deleted at every start: a power cut may leave older bytes in place of some. After a crash the entries that
were in memory are made again.

A storage that other brokers write to is not indexed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final, TypeVar

from posthouse.broker.key_index.entries import Entries, seconds_of
from posthouse.broker.key_index.file_format import (
    DamagedIndex,
    IndexHeader,
    Read,
    decode_file,
    encode_file,
    find_in_file,
)
from posthouse.broker.key_index.files import IndexFiles
from posthouse.broker.key_index.filling import entries_of
from posthouse.broker.key_index.loading import is_in_log, usable_files
from posthouse.broker.key_index.names import NameQuery, name_hash
from posthouse.broker.key_index.partition_index import PartitionIndex, Piece, Place, Places
from posthouse.model.clock import Clock
from posthouse.model.errors import NotFound, OffsetOutOfRange, Unavailable
from posthouse.model.ids import PartitionId
from posthouse.model.topic_config import Durability
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage

log = logging.getLogger(__name__)

T = TypeVar("T")

_IDLE_SECONDS: Final = 1.0
_SHARE: Final = 0.25
"""Of the time, while there is something to index."""
_LONGEST_REST: Final = 1.0
_READ_BYTES: Final = 256 * 1024
_AGAIN_SECONDS: Final = 60.0
"""After a failure of the disk."""
_THREADS: Final = 2
"""One for the task, and one for searches."""
_PARTITIONS_PER_TURN: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLimits:
    file_entries: int = 256 * 1024
    """12 bytes each."""
    memory_entries: int = 1024 * 1024
    """Of all partitions together, besides those that are being made."""
    kept_entries: int = 4096
    """Fewer are not written when the broker stops: they are soon made again."""


class KeyIndex:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        files: IndexFiles,
        clock: Clock,
        *,
        limits: IndexLimits | None = None,
        executor: Callable[[], Executor] | None = None,
    ) -> None:
        self._storage = storage
        self._files = files
        self._clock = clock
        self._limits = limits or IndexLimits()
        self._make_executor = executor or partial(
            ThreadPoolExecutor, _THREADS, thread_name_prefix="posthouse-key-index"
        )
        self._executor: Executor | None = None
        self._partitions: dict[PartitionId, PartitionIndex] = {}
        self._task: asyncio.Task[None] | None = None
        self._writing = Lock()
        """A stop may write again what the task, which it has cancelled, is writing."""
        self._is_active = not storage.is_shared
        self._retry_writing_at = 0.0
        self.indexed_records = 0
        """Offsets that were indexed since the start."""
        self.damaged_files = 0
        """Files that were deleted since the start, because they were damaged."""
        self.searches = 0
        """Since the start, by any protocol."""
        self.searched_bytes = 0
        """Of batches that the broker has read for them."""

    @property
    def entries_in_memory(self) -> int:
        return sum(each.entries_in_memory for each in self._partitions.values())

    @property
    def file_bytes(self) -> int:
        return sum(header.size for each in self._partitions.values() for header in each.files)

    def behind(self) -> int:
        """Offsets that are not indexed yet, of all partitions."""
        missing = 0
        for id in self._wanted():
            bounds = self._storage.bounds(id)
            index = self._partitions.get(id) or PartitionIndex(id)
            pieces = index.pieces(bounds.start, bounds.end)
            missing += sum(each.end - each.first for each in pieces if each.known is None)
        return missing

    async def load(self) -> None:
        """After the storage was opened and before anything is written to it. What cannot be read is made
        again."""
        if not self._is_active or not self._files.outlive_the_broker:
            return
        ends = {id: self._storage.bounds(id).end for id in self._wanted()}
        try:
            found = await self._on_thread(lambda: usable_files(self._files, ends))
        except OSError as error:
            # Files of a lost end of the log would be taken for those of what is written next.
            log.error("the key index cannot be read, so records are found by reading the log: %s", error)
            self._is_active = False
            return
        for header in found:
            index = self._partitions.setdefault(header.partition, PartitionIndex(header.partition))
            index.files.append(header)

    def start(self) -> None:
        if self._is_active:
            self._task = asyncio.create_task(self._run(), name="key index")

    async def stop(self) -> None:
        """Before the storage is closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            for index in list(self._partitions.values()):
                if index.recent is not None and len(index.recent) >= self._limits.kept_entries:
                    index.seal()
                await self._write_sealed(index)
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None

    # Searches

    def has(self, topic: Topic) -> bool:
        """Whether records of the topic are indexed here; what is not indexed yet counts as well."""
        return self._is_active and topic.config.index_keys and not topic.is_internal

    def search(self, query: NameQuery) -> Places:
        """One search of a client, in any partitions."""
        self.searches += 1
        return partial(self._places, query)

    async def _places(
        self, query: NameQuery, partition: PartitionId, start: int, end: int, *, newest_first: bool = False
    ) -> AsyncGenerator[Place, None]:
        index = self._partitions.get(partition)
        if index is not None and not index.is_proven:
            await self._prove(index)
        pieces = (index or PartitionIndex(partition)).pieces(start, end)
        hash = name_hash(query.name)
        earliest, latest = seconds_of(query.since_ms), seconds_of(query.until_ms)
        for piece in reversed(pieces) if newest_first else pieces:
            offsets = await self._offsets(index, piece, hash, earliest, latest)
            if offsets is None:
                yield Place(piece.first, piece.end, is_exact=False)
                continue
            for offset in reversed(offsets) if newest_first else offsets:
                if piece.first <= offset < piece.end:
                    yield Place(offset, offset + 1, is_exact=True)

    async def _offsets(
        self, index: PartitionIndex | None, piece: Piece, hash: int, earliest: int, latest: int
    ) -> Sequence[int] | None:
        known = piece.known
        if known is None or index is None:
            return None
        if isinstance(known, Entries):
            return sorted(set(known.find(hash, earliest, latest)))
        if latest < known.earliest or earliest > known.latest:
            return ()
        try:
            read = self._reader(known)
            found = await self._on_thread(lambda: find_in_file(read, known, hash, earliest, latest))
        except (DamagedIndex, OSError) as error:
            await self._damaged(index, known, error)
            return None
        return sorted(set(found))

    def _reader(self, header: IndexHeader) -> Read:
        return partial(self._files.read, header.partition.topic, header.name)

    async def _damaged(self, index: PartitionIndex, header: IndexHeader, error: Exception) -> None:
        if header not in index.files:
            return  # retention or a larger file has just removed it
        self.damaged_files += 1
        log.warning(
            "key index of %s, file %s: deleted and made again, because of damage: %s",
            header.partition,
            header.name,
            error,
        )
        index.drop(header)
        await self._remove([header])

    # The task

    async def _run(self) -> None:
        while True:
            try:
                did_something = await self._turn()
            except Exception:
                log.exception("the key index failed, retrying in %s s", _AGAIN_SECONDS)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if not did_something:
                await asyncio.sleep(_IDLE_SECONDS)

    async def catch_up(self) -> None:
        """Index all that there is now, without rests. For tests and measurements."""
        while await self._turn(rests=False):
            pass

    async def _turn(self, *, rests: bool = True) -> bool:
        """One piece of each partition that is behind. Returns whether there was one."""
        await self._forget_others()
        did_something = False
        for number, id in enumerate(self._wanted()):
            if number % _PARTITIONS_PER_TURN == _PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            began = self._clock.monotonic()
            try:
                did = await self._step(id)
            except NotFound:
                continue  # deleted meanwhile
            if did:
                did_something = True
                took = self._clock.monotonic() - began
                await asyncio.sleep(min(took * (1 / _SHARE - 1), _LONGEST_REST) if rests else 0)
        return did_something

    def _wanted(self) -> list[PartitionId]:
        topics = self._storage.topics.values() if self._is_active else ()
        return [id for topic in topics if self.has(topic) for id in topic.partition_ids()]

    async def _forget_others(self) -> None:
        """Partitions of topics that are deleted, or no longer indexed."""
        if not self._partitions:
            return
        wanted = set(self._wanted())
        gone = [id for id in self._partitions if id not in wanted]
        for id in gone:
            del self._partitions[id]
        kept = {id.topic for id in wanted}
        for topic in {id.topic for id in gone} - kept:
            await self._try(partial(self._files.remove_topic, topic))

    async def _step(self, id: PartitionId) -> bool:
        index = self._partitions.get(id)
        bounds = self._storage.bounds(id)
        if index is None:
            if bounds.start == bounds.end:
                return False
            index = self._partitions[id] = PartitionIndex(id, is_proven=True)
        await self._remove(index.trim(bounds.start))
        await self._remove(self._outgrown(index))
        now = self._clock.monotonic()
        if now < index.paused_until or now < self._retry_writing_at:
            return False
        if not index.is_proven:
            await self._prove(index)
        gap = index.next_gap(bounds.start, bounds.end)
        if gap is None:
            return False
        try:
            await self._fill(index, *gap)
        except OffsetOutOfRange:
            return False  # retention was faster
        except Unavailable as error:
            log.warning("key index of %s: paused, because the log cannot be read: %s", id, error)
            index.paused_until = now + _AGAIN_SECONDS
            return False
        await self._write_full(index)
        return True

    async def _fill(self, index: PartitionIndex, first: int, end: int) -> None:
        part = await self._storage.read(index.id, first, _READ_BYTES)
        filled = await self._on_thread(lambda: entries_of(part.data, first, end))
        if self._partitions.get(index.id) is not index or self._storage.bounds(index.id).start > first:
            return
        if filled.skipped_to is not None:
            index.skipped.append((first, filled.skipped_to))
            log.warning("%s: the batch at offset %d has no entries in the key index", index.id, first)
        elif filled.entries.end > first:
            topic = self._storage.topics.get(index.id.topic)
            filled.entries.may_change = topic is None or topic.config.durability is Durability.OS
            index.add(filled.entries)
            self.indexed_records += filled.entries.end - first
        else:
            index.skipped.append((first, end))  # batches that begin behind: nothing can be read here

    def _outgrown(self, index: PartitionIndex) -> list[IndexHeader]:
        topic = self._storage.topics.get(index.id.topic)
        if topic is None or not topic.config.is_compacted:
            return []
        return index.outgrown(self._storage.size(index.id))

    async def _prove(self, index: PartitionIndex) -> None:
        """Delete newest files until one ends with a batch that the log has."""
        while index.files and not index.is_proven:
            newest = index.files[-1]
            if await is_in_log(self._storage, newest):
                break
            if newest in index.files:
                log.info("key index of %s: file %s is not of this log", index.id, newest.name)
                index.drop(newest)
                await self._remove([newest])
        index.is_proven = True

    # Files

    async def _write_full(self, index: PartitionIndex) -> None:
        if index.recent is not None and len(index.recent) >= self._limits.file_entries:
            index.seal()
        elif self.entries_in_memory > self._limits.memory_entries:
            largest = max(self._partitions.values(), key=lambda each: each.entries_in_memory)
            largest.seal()
            await self._write_sealed(largest)
        await self._write_sealed(index)

    async def _write_sealed(self, index: PartitionIndex) -> None:
        for entries in list(index.sealed):
            replaced = index.joinable(entries, self._limits.file_entries)
            try:
                header = await self._on_thread(partial(self._write, index.id, entries, replaced))
            except DamagedIndex as error:
                for each in replaced:
                    await self._damaged(index, each, error)
                return await self._write_sealed(index)
            except OSError as error:
                log.warning("key index: cannot be written, retrying in %s s: %s", _AGAIN_SECONDS, error)
                self._retry_writing_at = self._clock.monotonic() + _AGAIN_SECONDS
                # Memory is bounded: they are made again later.
                index.sealed = [each for each in index.sealed if each is not entries]
                return None
            if self._partitions.get(index.id) is not index or entries not in index.sealed:
                await self._remove([header])  # the topic was deleted, or the log trimmed
                continue
            index.written(entries, header, replaced)
            await self._remove(replaced)
        return None

    def _write(self, id: PartitionId, entries: Entries, replaced: Sequence[IndexHeader]) -> IndexHeader:
        """On a thread."""
        with self._writing:
            if replaced:
                whole = decode_file(self._reader(replaced[0]), replaced[0])
                for header in replaced[1:]:
                    whole.extend(decode_file(self._reader(header), header))
                whole.extend(entries)
                entries = whole
            header, parts = encode_file(id, entries)
            self._files.write(id.topic, header.name, parts)
            return header

    async def _remove(self, headers: Sequence[IndexHeader]) -> None:
        if headers:
            topic, names = headers[0].partition.topic, [each.name for each in headers]
            await self._try(partial(self._files.remove, topic, names))

    async def _try(self, work: Callable[[], None]) -> None:
        """Files that stay are removed at the next start, at the latest."""
        try:
            await self._on_thread(work)
        except OSError as error:
            log.warning("key index: files cannot be removed: %s", error)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        if self._executor is None:
            self._executor = self._make_executor()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
