"""Records that come as whole batches, from stream producers, on their way to queues.

A record of a topic counts as published to the exchange of that name where there is one, otherwise as sent to
the queue of that name. Its key is the routing key, unless the header `posthouse.routing-key` has another.
"""

from collections.abc import Collection, Mapping

from posthouse.broker.queues.attributes import as_text
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.message import MessageLane
from posthouse.broker.queues.record_headers import ROUTING_KEY
from posthouse.broker.routing.exchange import Exchange
from posthouse.broker.routing.router import Router
from posthouse.model.errors import CorruptBatch, RecordTooLarge
from posthouse.model.ids import PartitionId
from posthouse.records.batch import SMALLEST_RECORD, BatchHeader
from posthouse.records.record import Record, body_in, iter_records
from posthouse.storage.operations import Append, Refer, Run

_ROUTING_KEY = ROUTING_KEY.decode()
_MAX_RECORDS = 65_536
"""Of one batch. They are routed and counted one by one, and a few bytes can say that they are millions."""


class Referrals:
    """Of one commit: which lanes get references to which records."""

    left: Collection[PartitionId] = ()
    """Nothing is left to another broker."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._lanes: dict[MessageLane, list[Run]] = {}

    def operations(self) -> list[Refer]:
        """To be committed at once: a queue may be deleted at any time."""
        self._lanes = {lane: runs for lane, runs in self._lanes.items() if not lane.is_gone}
        return [Refer(lane.log, runs) for lane, runs in self._lanes.items()]

    def durable(self) -> None:
        for lane, runs in self._lanes.items():
            lane.arrived(runs)

    def add(self, router: Router[LogQueue], target: Exchange | LogQueue, append: Append) -> None:
        """A batch that is about to be appended."""
        count = append.header.last_offset_delta + 1
        if not _can_hold(append):
            return
        if isinstance(target, LogQueue):
            self._refer((target,), append, 0, count, append.header.length)
        elif target.route_of_all is not None:
            self._refer(target.route_of_all, append, 0, count, append.header.length)
        else:
            try:
                self._route_each(router, target, append)
            except (CorruptBatch, RecordTooLarge):
                return  # unreadable records of a producer: they are in the log, and in no queue

    def _route_each(self, router: Router[LogQueue], exchange: Exchange, append: Append) -> None:
        base = append.header.base_offset
        for record in iter_records(append.batch):
            queues = router.route(exchange, routing_key(record), lambda record=record: attributes(record))  # type: ignore[misc]
            size = len(record.value or b"")
            if queues:
                self._refer(queues, append, record.offset - base, 1, size)

    def _refer(self, queues: tuple[LogQueue, ...], append: Append, first: int, count: int, size: int) -> None:
        partition, placed = append.partition, append if append.base_offset < 0 else None
        if placed is None:  # it has its place already, and need not be kept in memory for that
            first += append.base_offset
        for queue in queues:
            expires_ms = queue.time_of(self._now_ms, None)
            runs = self._lanes.setdefault(queue.lane_for(0), [])
            last = runs[-1] if runs else None
            if (
                last is not None
                and last.append is placed
                and last.partition == partition
                and last.first + last.count == first
            ):
                last.count += count
                last.size += size
            else:
                runs.append(Run(partition, first, count, size, expires_ms, placed))


def _can_hold(append: Append) -> bool:
    """Whether a batch can hold as many records as its header says: queues count by that."""
    header = append.header
    least = header.count * SMALLEST_RECORD
    if least <= header.length:
        return True
    try:
        body_in(append.batch, header, max_output=least - 1)
    except RecordTooLarge:
        return True  # there is more in it, and that is all that matters
    except CorruptBatch:
        return False
    return False


def check_referable(header: BatchHeader) -> None:
    """Raises RecordTooLarge for a batch that queues cannot refer to."""
    if header.count > _MAX_RECORDS:
        raise RecordTooLarge(f"a batch of {header.count} records, where queues take {_MAX_RECORDS} at a time")


def routing_key(record: Record) -> bytes:
    for name, value in record.headers:
        if name == _ROUTING_KEY:
            return value or b""
    return record.key or b""


def attributes(record: Record) -> Mapping[str, object]:
    return {name: as_text(value) for name, value in record.headers}
