"""Recovery of a queue after a restart: reads from its references what progress does not store."""

from posthouse.broker.queues.expiries import SPAN
from posthouse.broker.queues.message import MessageLane
from posthouse.broker.queues.reading import LaneReader
from posthouse.model.errors import OffsetOutOfRange
from posthouse.records.batch import NO_TIMESTAMP, iter_headers
from posthouse.storage.contract import Storage

_SCAN_BYTES = 256 * 1024


async def find_expiries(storage: Storage, lane: MessageLane) -> None:
    """Batches of references say when the first of them expires; where none does, nothing is read."""
    end = lane.end
    first = await storage.find_timestamp(lane.log, 0)
    # The log may begin in the middle of a batch, whose timestamp is that of a position that is gone.
    await _find_between(storage, lane, lane.progress.floor, min(lane.progress.floor + 1, end), 1)
    if first is not None:
        await _find_between(storage, lane, first.offset, end, _SCAN_BYTES)


async def _find_between(
    storage: Storage, lane: MessageLane, position: int, end: int, read_bytes: int
) -> None:
    """Watch the batches that hold these positions; neighbours together, as when they arrived."""
    span: tuple[int, int, int] | None = None
    while (position := max(position, lane.progress.floor)) < end:
        try:
            found = await storage.read(lane.log, position, read_bytes)
        except OffsetOutOfRange:
            if position >= lane.progress.floor:
                raise
            continue  # settled and trimmed meanwhile
        if not found.data:
            break
        for _, header in iter_headers(memoryview(found.data)):
            position = header.next_offset
            if header.base_timestamp == NO_TIMESTAMP:
                continue
            if span is not None and position - span[1] <= SPAN:
                span = min(span[0], header.base_timestamp), span[1], position
                continue
            if span is not None:
                lane.expiries.add_span(*span)
            span = header.base_timestamp, header.base_offset, position
    if span is not None:
        lane.expiries.add_span(*span)


async def unsettled_bytes(reader: LaneReader, lane: MessageLane) -> int:
    """Bytes of the values of all unsettled messages; those settled out of order are estimated."""
    total, end = lane.progress.stash.size, lane.end
    reader.seek(lane.progress.floor)
    while (found := await reader.next_run(end)) is not None:
        position, run = found
        settled = 0
        if lane.progress.settled_above:
            settled = sum(lane.progress.is_settled(at) for at in range(position, position + run.count))
        total += run.size * (run.count - settled) // run.count
    return total
