"""Producer state of a partition: detects duplicate batches, and tracks open and aborted transactions.

Part of storage, because the decision must be made where offsets are assigned. Owned by the event loop. There
are two layers: `_durable` matches the log; `_placed` is ahead of it by the batches that are being written,
and is discarded when a write fails.

`producer_rows` has the stored format.
"""

from bisect import bisect_left, insort
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.model.errors import OutOfOrderSequence, ProducerFenced
from posthouse.model.ids import is_keyed
from posthouse.records.batch import BatchHeader

REMEMBERED_BATCHES = 5
"""The maximum number of batches that a client has in flight: it cannot repeat an older one."""
LAST_SEQUENCE = 2**31 - 1
NOT_OPEN = -1
BUCKET_BITS = 6
"""Producers whose ids differ only in this many low bits share a stored row. A row of 64 costs little more
than a row of one; with a row for each, 100,000 producers took six times as long to store and twice as long to
load."""


class BatchMemory(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


class Producer(NamedTuple):
    """State of one producer. Immutable, so that the two layers can share it."""

    epoch: int
    batches: tuple[BatchMemory, ...]
    last_time: int
    open_since: int
    """Offset of the first record of the producer's open transaction, or NOT_OPEN."""


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes to store."""

    buckets: dict[int, dict[int, Producer]]
    """Changed buckets by number, with all producers of each by id."""
    aborted: dict[int, AbortedTransaction | None]
    """Changed aborted transactions by the offset of the marker; None for removed ones."""
    replaces_whole: bool
    """The changes hold all state, and replace the single row of format 1."""


class ProducerTable:
    __slots__ = (
        "_aborted",
        "_awaited",
        "_changed",
        "_changed_markers",
        "_durable",
        "_open",
        "_placed",
        "is_stored_whole",
    )

    def __init__(self) -> None:
        self._durable: dict[int, Producer] = {}
        self._placed: dict[int, Producer] = {}
        self._awaited: dict[int, tuple[int, int]] = {}
        """Epoch and sequence of the first batch of producers without durable batches. If that batch fails,
        the client sends it again; until then later batches are refused. An idempotency key has one request:
        nothing is later, and the client may give up, or send another body."""
        self._aborted: list[AbortedTransaction] = []
        self._open: dict[int, int] = {}
        self._changed: dict[int, None] = {}
        """Buckets that differ from the stored rows, in the order of their change."""
        self._changed_markers: dict[int, None] = {}
        """The same for aborted transactions, by the offsets of their markers."""
        self.is_stored_whole = False
        """Stored in one row, as in format 1."""

    def __len__(self) -> int:
        return len(self._durable)

    def get(self, producer_id: int) -> Producer | None:
        """The producer after its last durable batch."""
        return self._durable.get(producer_id)

    def repeated(self, header: BatchHeader) -> int | None:
        """The offset of the first copy of a duplicate batch, None for a new batch. Raises if the batch must
        be refused."""
        known = self._placed.get(header.producer_id) or self._durable.get(header.producer_id)
        if known is None:
            # Unknown, or expired with its records: any sequence may follow.
            epoch, awaited = self._awaited.get(header.producer_id, (-1, -1))
            if header.producer_epoch == epoch and header.base_sequence != awaited and not header.is_control:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} sent sequence {header.base_sequence}; {awaited} failed"
                )
            return None
        if header.producer_epoch < known.epoch:
            raise ProducerFenced(
                f"producer {header.producer_id} has epoch {known.epoch}; {header.producer_epoch} is fenced"
            )
        if header.is_control:
            return None
        if header.producer_epoch > known.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"a new epoch of producer {header.producer_id} starts at 0, not {header.base_sequence}"
                )
            return None
        for batch in known.batches:
            if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                return batch.base_offset
        expected = _following(known.batches[-1].last_sequence) if known.batches else 0
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} sent sequence {header.base_sequence} instead of {expected}"
            )
        return None

    def place(self, header: BatchHeader, base_offset: int, now_ms: int) -> Producer:
        """The batch got an offset. The caller passes the result to `written` when the batch is durable."""
        known = self._placed.get(header.producer_id) or self._durable.get(header.producer_id)
        if known is None and not is_keyed(header.producer_id):
            self._awaited[header.producer_id] = (header.producer_epoch, header.base_sequence)
        after = self._placed[header.producer_id] = _after(known, header, base_offset, now_ms)
        return after

    def written(self, producer_id: int, after: Producer, base_offset: int, *, aborts: bool = False) -> None:
        """The batch is durable. `aborts` is true for the marker of an aborted transaction."""
        known = self._durable.get(producer_id)
        if aborts and known is not None and known.open_since != NOT_OPEN:
            self._aborted.append(AbortedTransaction(producer_id, known.open_since, base_offset))
            self._changed_markers[base_offset] = None
        if known is None:
            self._awaited.pop(producer_id, None)
        self._durable[producer_id] = after
        self._note_open(producer_id, after)
        if self._placed.get(producer_id) is after:
            del self._placed[producer_id]
        self._changed[producer_id >> BUCKET_BITS] = None

    def replay(self, header: BatchHeader, base_offset: int, now_ms: int, *, aborts: bool) -> None:
        """Apply a batch that recovery found in the log."""
        known = self._durable.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            return  # only if the log was damaged between the two
        after = _after(known, header, base_offset, now_ms)
        self.written(header.producer_id, after, base_offset, aborts=aborts)

    def _note_open(self, producer_id: int, producer: Producer) -> None:
        if producer.open_since == NOT_OPEN:
            self._open.pop(producer_id, None)
        else:
            self._open[producer_id] = producer.open_since

    def roll_back(self) -> None:
        self._placed.clear()

    def first_open(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return min(self._open.values()) if self._open else None

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with a record or marker at an offset from `start` to before `end`."""
        first = bisect_left(self._aborted, start, key=lambda each: each.last_offset)
        return [each for each in self._aborted[first:] if each.first_offset < end]

    def trim(self, log_start: int) -> None:
        """Remove aborted transactions that end below the log start."""
        keep = bisect_left(self._aborted, log_start, key=lambda each: each.last_offset)
        if keep:
            self._changed_markers |= {each.last_offset: None for each in self._aborted[:keep]}
            del self._aborted[:keep]

    def forget_aborted(self, markers: Collection[int]) -> None:
        """Remove transactions of which compaction has left only the marker at one of these offsets."""
        self._aborted = [each for each in self._aborted if each.last_offset not in markers]
        self._changed_markers |= dict.fromkeys(markers)

    def expire(self, before_ms: int) -> None:
        """Remove producers without a batch since `before_ms`, except those with an open transaction."""
        gone = [
            id
            for id, each in self._durable.items()
            if each.last_time < before_ms and each.open_since == NOT_OPEN and id not in self._placed
        ]
        for id in gone:
            del self._durable[id]
            self._changed[id >> BUCKET_BITS] = None

    def active(self) -> dict[int, Producer]:
        return dict(self._durable)

    @property
    def is_changed(self) -> bool:
        """Whether the state differs from the stored rows."""
        return bool(self._changed or self._changed_markers)

    def take_changes(self) -> Changes:
        """The changes since the last call; they count as stored from now on."""
        if self.is_stored_whole:
            self._changed |= {id >> BUCKET_BITS: None for id in self._durable}
            self._changed_markers |= {each.last_offset: None for each in self._aborted}
        changes = Changes(
            buckets={bucket: self._bucket(bucket) for bucket in self._changed},
            aborted={marker: self._aborted_at(marker) for marker in self._changed_markers},
            replaces_whole=self.is_stored_whole,
        )
        self._changed, self._changed_markers, self.is_stored_whole = {}, {}, False
        return changes

    def put_back(self, changes: Changes) -> None:
        """Mark changes as not stored again, after a failed write."""
        self._changed |= dict.fromkeys(changes.buckets)
        self._changed_markers |= dict.fromkeys(changes.aborted)
        self.is_stored_whole |= changes.replaces_whole

    def removal(self) -> Changes:
        """The changes that remove all stored rows."""
        buckets: dict[int, dict[int, Producer]] = {bucket: {} for bucket in self._changed}
        buckets |= {id >> BUCKET_BITS: {} for id in self._durable}
        markers: dict[int, AbortedTransaction | None] = {each.last_offset: None for each in self._aborted}
        markers |= self._changed_markers
        return Changes(buckets=buckets, aborted=markers, replaces_whole=self.is_stored_whole)

    def _bucket(self, bucket: int) -> dict[int, Producer]:
        durable = self._durable
        ids = range(bucket << BUCKET_BITS, (bucket + 1) << BUCKET_BITS)
        return {id: durable[id] for id in ids if id in durable}

    def _aborted_at(self, marker: int) -> AbortedTransaction | None:
        at = bisect_left(self._aborted, marker, key=lambda each: each.last_offset)
        found = self._aborted[at] if at < len(self._aborted) else None
        return found if found is not None and found.last_offset == marker else None

    def load_producer(self, id: int, producer: Producer) -> None:
        """Load a stored producer."""
        self._durable[id] = producer
        self._note_open(id, producer)

    def load_aborted(self, aborted: AbortedTransaction) -> None:
        insort(self._aborted, aborted, key=lambda each: each.last_offset)


def _after(known: Producer | None, header: BatchHeader, base_offset: int, now_ms: int) -> Producer:
    """The producer after this batch."""
    same_epoch = known is not None and known.epoch == header.producer_epoch
    batches = known.batches if known is not None and same_epoch else ()
    if header.is_control:
        return Producer(header.producer_epoch, batches, now_ms, NOT_OPEN)
    open_since = known.open_since if known is not None else NOT_OPEN
    if header.is_transactional and open_since == NOT_OPEN:
        open_since = base_offset
    latest = BatchMemory(header.base_sequence, header.last_sequence, base_offset)
    return Producer(header.producer_epoch, (*batches, latest)[-REMEMBERED_BATCHES:], now_ms, open_since)


def _following(sequence: int) -> int:
    return 0 if sequence == LAST_SEQUENCE else sequence + 1
