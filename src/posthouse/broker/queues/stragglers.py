"""A few old messages that hold much back: finding them, and copying them into the stash of their queue."""

import logging
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from posthouse.broker.queues.message import Message, MessageLane
from posthouse.broker.queues.needs import LaneNeeds
from posthouse.broker.queues.queue import Queue
from posthouse.broker.queues.reading import LaneReader
from posthouse.broker.queues.rereading import Rereading
from posthouse.model.errors import CorruptBatch
from posthouse.model.ids import PartitionId
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.header_section import decode_section
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append

log = logging.getLogger(__name__)

_BATCH_BYTES = 1024 * 1024
_SPARSE = 4
"""A stash is rewritten when less than one in four of its records is still live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerLimits:
    """The limits of what counts as a straggler."""

    most: int = 1000
    """Where more messages than this are unsettled, they are a backlog and stay where they are."""
    positions: int = 100_000
    """Stragglers are put aside when they hold back this many positions of a lane,"""
    size: int = 64 * 1024 * 1024
    """or this many bytes of its messages, or of a topic that retention would remove."""
    seconds: float = 120.0
    """How long they may hold it back."""
    stashed: int = 10_000
    """A lane has no more than this in the stash."""
    rewritten: int = 1024 * 1024
    """A smaller stash is not written anew."""


@dataclass(frozen=True, slots=True)
class Straggling:
    """The messages below `end` have held something back since `since`."""

    end: int
    since: float


def straggling_to(
    lane: MessageLane, needs: LaneNeeds, overdue: Mapping[PartitionId, int], limits: StragglerLimits
) -> int:
    """Up to where a few messages hold much back; the floor, where that is not so.

    Either much of the lane is settled behind them, or they alone hold retention back: `overdue` has up
    to which offset.
    """
    progress = lane.progress
    end, _ = progress.stragglers(limits.most)
    if end - progress.floor < limits.positions and needs.size(progress.floor, end) < limits.size:
        end = progress.floor
    beyond = needs.end_of(overdue) if overdue else 0
    if beyond > end and len(progress.unsettled(beyond, limits.most + 1)) <= limits.most:
        end = beyond
    return end


async def put_aside(storage: Storage, queue: Queue, lane: MessageLane, end: int, most: int) -> None:
    """Copy the unsettled messages below `end` into the stash."""
    positions = lane.progress.unsettled(end, most)
    log.info("%s: %d old messages are put aside, up to %d", queue, len(positions), end)
    await _copy(storage, queue, _from_log(queue.dispatcher.new_reader(lane), positions))


async def rewrite(storage: Storage, queue: Queue) -> None:
    """Copy the live messages of the stash to its end, so that everything before can be trimmed."""
    await _copy(storage, queue, _from_stash(storage, queue))


def is_sparse(storage: Storage, queue: Queue, limits: StragglerLimits) -> bool:
    live = sum(len(lane.progress.stash) for lane in queue.lanes)
    if not live:
        return False
    bounds = storage.bounds(queue.stash)
    return live * _SPARSE < bounds.end - bounds.start and storage.size(queue.stash) >= limits.rewritten


async def _from_log(reader: LaneReader, positions: Sequence[int]) -> AsyncIterator[Message]:
    for first, end in _stretches(positions):
        reader.seek(first)
        async for messages in reader.messages(end):
            for message in messages:
                yield message


async def _from_stash(storage: Storage, queue: Queue) -> AsyncIterator[Message]:
    rereading = Rereading(storage)
    for lane in queue.lanes:
        reader = queue.dispatcher.new_reader(lane)
        for position in sorted(lane.progress.stash):
            if position in lane.progress.stash:
                message = reader.stashed(position)
                if await rereading.reload(message):
                    yield message


async def _copy(storage: Storage, queue: Queue, messages: AsyncIterable[Message]) -> None:
    builder, gathered = BatchBuilder(), list[Message]()
    async for message in messages:
        _add(builder, message)
        gathered.append(message)
        if builder.size_estimate >= _BATCH_BYTES:
            await _append(storage, queue, builder, gathered)
            builder, gathered = BatchBuilder(), []
    if gathered:
        await _append(storage, queue, builder, gathered)


def _add(builder: BatchBuilder, message: Message) -> None:
    assert message.value is not None, "it was just read"
    if message.key is None:
        try:
            headers = [(name.decode(), value) for name, value in decode_section(message.headers)]
            builder.add(None, message.value, headers, message.timestamp)
            return
        except (CorruptBatch, UnicodeDecodeError):
            pass  # headers as they are, and an empty key, are as near as one can get
    builder.add_raw(message.key or b"", message.value, message.headers, message.timestamp)


async def _append(storage: Storage, queue: Queue, builder: BatchBuilder, messages: Sequence[Message]) -> None:
    batch = memoryview(builder.build())
    [outcome] = await storage.commit([Append(queue.stash, batch, parse_header(batch))])
    for offset, message in enumerate(messages, outcome.base_offset):
        message.lane.put_aside(message, offset)
    for lane in {message.lane for message in messages}:
        queue.progressed(lane)
    queue.put_aside()


def _stretches(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Positions that follow each other, from the first to behind the last."""
    first = end = -1
    for position in positions:
        if position != end:
            if first >= 0:
                yield first, end
            first = position
        end = position + 1
    if first >= 0:
        yield first, end
