"""Reads the messages of a lane from disk: first references, then the records that they point to."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable

from posthouse.broker.queues.message import Message, MessageLane, MessageSource
from posthouse.model.errors import (
    CorruptBatch,
    DataDamaged,
    NotFound,
    OffsetOutOfRange,
    PosthouseError,
    RecordTooLarge,
    UnknownPartition,
    UnknownQueue,
)
from posthouse.model.ids import PartitionId, TopicId
from posthouse.records.batch import NO_TIMESTAMP, BatchHeader, iter_headers
from posthouse.records.compression import Codec
from posthouse.records.raw import NO_HEADERS, iter_raw
from posthouse.records.record import body_of
from posthouse.records.references import NEVER, Reference, iter_references
from posthouse.storage.contract import Storage

log = logging.getLogger(__name__)


class QueueGone(UnknownQueue):
    """The queue was deleted while it was read: the reader stops."""


_REFERENCE_BYTES = 64 * 1024
_RECORD_BYTES = 1024 * 1024
_UNPACKED_BYTES = 4 * 1024 * 1024
"""Bounds what well compressed batches take in memory."""
_QUICKLY_UNPACKED = 4096
"""Compressed batches up to this size are unpacked on the event loop: they cannot become large."""
_RECORD_OVERHEAD = 120
"""Estimated bytes of a record besides its value, to read no more than is used."""


class LaneReader:
    """Reads the messages of one lane from a position on. A lane may have several readers."""

    def __init__(
        self,
        storage: Storage,
        queue: MessageSource,
        lane: MessageLane,
        start: int,
        pass_over: Callable[[int, int], None] = lambda first, end: None,
        *,
        only_looks: bool = False,
    ) -> None:
        """`pass_over` is called with the first position that cannot be read, and the end of these.

        A reader that `only_looks` settles nothing where records are gone, and logs nothing: the queue's own
        reader does that, once.
        """
        self._storage = storage
        self._queue = queue
        self._lane = lane
        self._pass_over = pass_over
        self._only_looks = only_looks
        self._runs: deque[tuple[int, Reference]] = deque()
        """The next references that were read, with their positions."""
        self._read_to = start
        self._read_bytes = _REFERENCE_BYTES

    def read_no_more_than(self, size: int) -> None:
        """Limit the bytes of references that are read at a time."""
        self._read_bytes = min(size, _REFERENCE_BYTES)

    def seek(self, position: int) -> None:
        self._runs.clear()
        self._read_to = position

    @property
    def position(self) -> int:
        """The position that is read next."""
        return self._runs[0][0] if self._runs else self._read_to

    async def messages(self, end: int) -> AsyncIterator[list[Message]]:
        """Unsettled messages below `end`, in pieces."""
        while (run := await self.next_run(end)) is not None:
            yield await self.load(*run)

    async def next_run(self, end: int) -> tuple[int, Reference] | None:
        """The next run of consecutive references below `end`, with its position: to be loaded or skipped."""
        self._pass_settled()
        while not self._runs and self._read_to < end:
            before = self._read_to
            await self._read_references()  # what cannot be read is passed over
            if self._read_to <= before:
                break
        if not self._runs or self._runs[0][0] >= end:
            return None
        position, run = self._runs.popleft()
        if position + run.count > end:
            run, rest = _split(run, end - position)
            self._runs.appendleft((end, rest))
        return position, run

    def _pass_settled(self) -> None:
        """Skip everything below the floor: its references and records may be trimmed."""
        floor = self._lane.progress.floor
        while self._runs and self._runs[0][0] < floor:
            position, run = self._runs.popleft()
            if position + run.count > floor:
                self._runs.appendleft((floor, _split(run, floor - position)[1]))
        self._read_to = max(self._read_to, floor)

    async def _read_references(self) -> None:
        try:
            found = await self._storage.read(self._lane.log, self._read_to, self._read_bytes)
        except OffsetOutOfRange:
            if self._read_to >= self._lane.progress.floor:
                raise
            self._pass_settled()  # it was trimmed meanwhile
            await self._read_references()
            return
        except UnknownPartition:
            raise QueueGone(f"{self._queue} was deleted") from None
        except DataDamaged as error:
            if error.next_offset is None:
                raise
            end = min(error.next_offset, max(self._lane.end, self._read_to + 1))  # the rest is yet to arrive
            self._skip(self._read_to, end, error)
            self._read_to = end
            return
        view = memoryview(found.data)
        runs, start = self._runs, self._read_to
        reached = start
        for place, header in iter_headers(view):
            for position, run in iter_references(view[place : place + header.length], header):
                if position + run.count <= start:
                    continue
                if not self._lane.expires:
                    run = run._replace(expires_ms=NEVER)
                if position < start:
                    position, run = start, _split(run, start - position)[1]
                if position > reached:
                    self._lose(reached, position, "references are damaged")
                reached = position + run.count
                if runs and _follows(runs[-1], position, run):
                    before, last = runs[-1]
                    runs[-1] = before, last._replace(count=last.count + run.count, size=last.size + run.size)
                else:
                    runs.append((position, run))
            self._read_to = header.next_offset
        if reached < self._read_to:
            self._lose(reached, self._read_to, "references are damaged")

    async def load(self, position: int, run: Reference) -> list[Message]:
        """The messages of the first part of a run; the rest is the next run. If it fails, because storage
        cannot be read now, the whole run is the next one again."""
        try:
            return await self._load(position, run)
        except BaseException:
            self._runs.appendleft((position, run))
            raise

    async def _load(self, position: int, run: Reference) -> list[Message]:
        try:
            wanted = run.size + run.count * _RECORD_OVERHEAD
            found = await self._storage.read(run.partition, run.first, min(wanted, _RECORD_BYTES))
        except OffsetOutOfRange as error:
            gone = min(max(self._storage.bounds(run.partition).start - run.first, 1), run.count)
            self._lose(position, position + gone, str(error))
            if gone < run.count:
                self._runs.appendleft((position + gone, _split(run, gone)[1]))
            return []
        except NotFound as error:
            self._lose(position, position + run.count, str(error))
            return []
        except DataDamaged as error:
            readable = run.count if error.next_offset is None else error.next_offset - run.first
            skipped = min(max(readable, 1), run.count)
            self._skip(position, position + skipped, error)
            if skipped < run.count:
                self._runs.appendleft((position + skipped, _split(run, skipped)[1]))
            return []
        end = run.first + run.count
        messages: list[Message] = []
        reached = run.first
        shift = position - run.first
        topic = self._topic_name(run.partition.topic)
        queue, lane, source, expires = self._queue, self._lane, run.partition, run.expires_ms
        progress = lane.progress
        for header, body in await self._unpacked(memoryview(found.data), end, run.partition):
            try:
                for offset, timestamp, key, value, headers in iter_raw(body, header, reached, end):
                    at = offset + shift
                    if progress.settled_above and progress.is_settled(at):
                        continue
                    size = len(value)
                    message = Message(
                        queue, lane, at, source, topic, offset, timestamp, key, value, size, headers, expires
                    )
                    if at < progress.handed_out_to:
                        message.redelivered = True
                        message.deliveries = progress.deliveries(at)
                    messages.append(message)
            except CorruptBatch as error:
                self._warn(source, header, error)
            reached = min(header.next_offset, end)
        if reached == run.first:
            self._lose(position, position + run.count, "the records are not there")
        elif reached < end:
            self._runs.appendleft((reached + shift, _split(run, reached - run.first)[1]))
        self._lose_missing(messages, position, reached + shift)
        return messages

    def _topic_name(self, topic: TopicId) -> str:
        """Empty for a topic that was deleted."""
        known = self._storage.topics.get(topic)
        return "" if known is None else known.name

    def stashed(self, position: int) -> Message:
        """A message that is in the stash, without its body."""
        lane = self._lane
        stashed = lane.progress.stash[position]
        return Message(
            queue=self._queue,
            lane=lane,
            position=position,
            source=lane.stash_log,
            topic=self._topic_name(stashed.topic),
            offset=stashed.offset,
            timestamp=NO_TIMESTAMP,
            key=None,
            value=None,
            size=stashed.size,
            headers=NO_HEADERS,
            expires_ms=stashed.expires_ms,
            deliveries=stashed.deliveries,
            redelivered=position < lane.progress.handed_out_to,
        )

    async def _unpacked(
        self, view: memoryview, end: int, partition: PartitionId
    ) -> list[tuple[BatchHeader, bytes]]:
        """The batches that begin before `end`, as many as are worth unpacking at once; without records where
        those cannot be unpacked."""
        batches = []
        size = 0
        for place, header in iter_headers(view):
            if header.base_offset >= end or size >= _UNPACKED_BYTES:
                break
            try:
                body = await unpacked(view[place : place + header.length], header)
            except (CorruptBatch, RecordTooLarge) as error:
                self._warn(partition, header, error)
                header, body = header._replace(count=0), b""
            batches.append((header, body))
            size += len(body)
        return batches

    def _warn(self, partition: PartitionId, header: BatchHeader, error: PosthouseError) -> None:
        log.warning(
            "%s: the batch at offset %d of %s-%d cannot be read: %s",
            self._queue,
            header.base_offset,
            self._topic_name(partition.topic),
            partition.index,
            error,
        )

    def _lose_missing(self, messages: list[Message], first: int, end: int) -> None:
        """Positions whose records are not there any more: compacted away, or damaged."""
        if len(messages) == end - first:
            return
        progress = self._lane.progress
        there = {message.position for message in messages}
        missing = -1
        for position in range(first, end + 1):
            if position < end and position not in there and not progress.is_settled(position):
                missing = position if missing < 0 else missing
            elif missing >= 0:
                self._lose(missing, position, "the records are not there any more")
                missing = -1

    def _skip(self, first: int, end: int, error: DataDamaged) -> None:
        """Positions that cannot be read now. They are not lost: a restart may find the file again."""
        if self._only_looks:
            return
        log.error(
            "%s: messages %d to %d cannot be read and stay in the queue: %s",
            self._queue,
            first,
            end - 1,
            error,
        )
        self._pass_over(first, end)

    def _lose(self, first: int, end: int, reason: str) -> None:
        if self._only_looks or end <= self._lane.progress.floor:
            return  # settled and trimmed while it was read
        log.warning("%s: messages %d to %d are lost: %s", self._queue, first, end - 1, reason)
        self._lane.lose(first, end)


async def unpacked(batch: memoryview, header: BatchHeader) -> bytes:
    """Its records, decompressed; on another thread where that may take long."""
    if header.codec is Codec.NONE or header.length < _QUICKLY_UNPACKED:
        return body_of(batch, header)
    return await asyncio.to_thread(body_of, batch, header)


def _split(run: Reference, count: int) -> tuple[Reference, Reference]:
    """The first `count` records, and the rest. Sizes are estimated: the run has one size for all records."""
    size = run.size * count // run.count
    return (
        run._replace(count=count, size=size),
        run._replace(first=run.first + count, count=run.count - count, size=run.size - size),
    )


def _follows(last: tuple[int, Reference], position: int, run: Reference) -> bool:
    before, reference = last
    return (
        before + reference.count == position
        and reference.partition == run.partition
        and reference.first + reference.count == run.first
        and reference.expires_ms == run.expires_ms
    )
