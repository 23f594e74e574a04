"""Compaction of single batches. Pure: bytes in, bytes out, no files and no clock.

The cleaner gets batches in log order, from the start of the log. So it knows for every transaction marker
whether records of its transaction are left.

- Only the latest record of a key stays. Records of aborted transactions, records without a key, and records
  before the start of the log are removed.
- A tombstone (a record without a value) stays at first, so that readers see it. The first pass that keeps a
  tombstone gives its batch a *delete horizon*: attribute bit 6, and, in place of the base timestamp, the time
  from which the tombstone may be removed. A later pass at or after that time removes it.
- A marker stays as long as any record of its transaction does. The first pass that finds no record left gives
  the marker a delete horizon too. An abort marker is removed only when the list of aborted transactions no
  longer has it. Otherwise readers would treat later records of the same producer as aborted.
- The last batch of a producer that may write again stays, if need be without records: the next batch is
  compared with its sequence and epoch.
"""

import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from posthouse.model.errors import CorruptBatch, RecordTooLarge
from posthouse.records.batch import BatchHeader, Readable
from posthouse.records.record import body_of
from posthouse.records.spans import Span, emptied, iter_spans, with_records
from posthouse.storage.cleaning.key_map import KeyMap
from posthouse.storage.producers import AbortedTransaction, Producer

log = logging.getLogger(__name__)

NO_HORIZON = 2**63 - 1
"""The delete horizon of batches without tombstones."""


class Aborted:
    """The aborted transactions of a partition, by producer."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._by_producer: defaultdict[int, list[AbortedTransaction]] = defaultdict(list)
        self.markers: set[int] = set()
        for each in transactions:
            self._by_producer[each.producer_id].append(each)
            self.markers.add(each.last_offset)

    def covers(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        known = self._by_producer.get(header.producer_id, ())
        number = bisect_right(known, header.base_offset, key=lambda each: each.first_offset) - 1
        return number >= 0 and header.base_offset <= known[number].last_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The parameters of one pass over a partition."""

    partition: str
    """Name of the partition, for log lines."""
    now_ms: int
    delete_retention_ms: int
    log_start: int
    dirty_from: int
    """Earlier passes have compacted everything below this offset; delete horizons found there were set by
    them."""
    aborted: Aborted
    producers: Mapping[int, Producer]


class BatchCleaner:
    def __init__(self, rules: Rules, keys: KeyMap, clean_to: int) -> None:
        self._rules = rules
        self._keys = keys
        self._clean_to = clean_to
        """The first offset that `keys` does not cover. Batches from here on stay unchanged."""
        self._with_data: set[int] = set()
        """Producers with transactional records kept since their last marker."""
        self._horizon = NO_HORIZON
        self.may_forget = True
        """Whether tombstones and markers may be removed. False once an earlier batch could not be cleaned."""
        self.forgotten: list[int] = []
        """Offsets of abort markers whose transactions can be removed from the list of aborted
        transactions."""

    def take_horizon(self) -> int:
        """The earliest delete horizon of what was kept since the last call."""
        horizon, self._horizon = self._horizon, NO_HORIZON
        return horizon

    def clean(self, batch: memoryview, header: BatchHeader) -> Readable | None:
        """The batch after cleaning: unchanged, a smaller one with the same offsets, or None."""
        left: Readable | None
        if header.base_offset >= self._clean_to:
            left = batch
        elif header.is_control:
            return self._marker(batch, header)
        else:
            left = self._records(batch, header)
            if left is None and self._is_last_of_producer(header):
                left = emptied(header) if header.count else batch
        if left is not None and header.is_transactional and not header.is_control:
            self._with_data.add(header.producer_id)
        return left

    def _records(self, batch: memoryview, header: BatchHeader) -> Readable | None:
        rules = self._rules
        if header.count == 0 or header.last_offset < rules.log_start or rules.aborted.covers(header):
            return None
        own_horizon = self._horizon_of(header)
        is_over = own_horizon is not None and own_horizon <= rules.now_ms and self.may_forget
        try:
            data = body_of(batch, header)
            kept, has_tombstones = self._kept(data, header, drop_tombstones=is_over)
        except (CorruptBatch, RecordTooLarge) as error:
            # The checksum is right, so the producer sent the batch like this. Cleaning could lose records, so
            # it stays.
            log.warning(
                "%s: batch at offset %d has records that cannot be decoded and is not compacted: %s",
                rules.partition,
                header.base_offset,
                error,
            )
            return batch
        new_horizon = None
        if has_tombstones and own_horizon is None:
            new_horizon = self._new_horizon()
        elif has_tombstones and own_horizon is not None:
            self._note(own_horizon)
        if not kept:
            return None
        if len(kept) == header.count and new_horizon is None:
            return batch
        return with_records(header, data, kept, delete_horizon=new_horizon)

    def _kept(self, data: bytes, header: BatchHeader, *, drop_tombstones: bool) -> tuple[list[Span], bool]:
        """The records to keep, and whether a tombstone is among them."""
        latest, log_start, base = self._keys.latest, self._rules.log_start, header.base_offset
        kept = []
        has_tombstones = False
        for span in iter_spans(data, header):
            offset = base + span.offset_delta
            if span.key is None or offset < log_start or latest(span.key) > offset:
                continue
            if span.is_tombstone:
                if drop_tombstones:
                    continue
                has_tombstones = True
            kept.append(span)
        return kept, has_tombstones

    def _marker(self, batch: memoryview, header: BatchHeader) -> Readable | None:
        rules = self._rules
        has_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if has_data or self._is_last_of_producer(header):
            return batch
        if header.last_offset < rules.log_start:
            return None
        own_horizon = self._horizon_of(header)
        if own_horizon is None:
            data = body_of(batch, header)
            spans = list(iter_spans(data, header))
            return with_records(header, data, spans, delete_horizon=self._new_horizon())
        if own_horizon > rules.now_ms or not self.may_forget:
            self._note(own_horizon)
            return batch
        if header.base_offset in rules.aborted.markers:
            self.forgotten.append(header.base_offset)
            self._horizon = min(self._horizon, own_horizon)
            return batch
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        producer = self._rules.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if producer is None or producer.epoch != header.producer_epoch:
            return False
        last = producer.batches[-1].base_offset if producer.batches else -1
        return last < header.base_offset if header.is_control else last == header.base_offset

    def _horizon_of(self, header: BatchHeader) -> int | None:
        is_ours = header.has_delete_horizon and header.base_offset < self._rules.dirty_from
        return header.base_timestamp if is_ours else None

    def _new_horizon(self) -> int:
        horizon = min(self._rules.now_ms + self._rules.delete_retention_ms, NO_HORIZON)
        self._note(horizon)
        return horizon

    def _note(self, horizon: int) -> None:
        """Remember the horizon. One that has already passed is ignored: something else keeps the record, and
        the time when that ends is unknown."""
        if horizon > self._rules.now_ms or self.may_forget:
            self._horizon = min(self._horizon, horizon)
