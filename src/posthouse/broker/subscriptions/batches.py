"""The records of stored batches that a subscription can deliver."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.model.errors import BadRequest
from posthouse.records.batch import BatchHeader, Readable, iter_headers
from posthouse.records.header_section import encode_section
from posthouse.records.raw import RawRecord, iter_raw
from posthouse.records.record import body_of
from posthouse.records.spans import iter_spans
from posthouse.storage.producers import AbortedTransaction

UNREADABLE: Final = b"posthouse.unreadable-batch"
"""The header of a dead letter that is a whole batch: why its records cannot be decoded."""


@dataclass(slots=True)
class Found:
    """One batch, and those of its records that were ready when it was read."""

    data: memoryview
    offsets: list[int]


Aborted = Callable[[BatchHeader], bool]


def nothing_aborted(header: BatchHeader) -> bool:
    return False


def aborted_in(transactions: Sequence[AbortedTransaction]) -> Aborted:
    """A predicate: whether a batch belongs to one of these aborted transactions."""

    def is_aborted(header: BatchHeader) -> bool:
        return header.is_transactional and any(
            each.producer_id == header.producer_id
            and each.first_offset <= header.base_offset <= each.last_offset
            for each in transactions
        )

    return is_aborted


def found_in(
    partition: SubscribedPartition,
    data: Readable,
    position: int,
    is_aborted: Aborted = nothing_aborted,
    most: int | None = None,
) -> Iterator[tuple[int, Found | None]]:
    """Each batch of `data`, which was read from `position`: the position of the next one, and its ready
    records.

    At most `most` records per batch. Markers, gaps and aborted records are never delivered, and are settled.
    """
    view = memoryview(data)
    for at, header in iter_headers(data):
        end = header.next_offset
        if end <= position:
            continue
        batch = view[at : at + header.length]
        partition.pass_over(position, header.base_offset)
        first = max(position, header.base_offset)
        found = None
        if header.is_control or not header.count or is_aborted(header):
            partition.pass_over(first, end)
        elif header.count == header.last_offset_delta + 1:
            found = Found(batch, partition.ready(range(first, end), most))
        else:
            present = _present(batch, header, first)
            if present is not None:
                _pass_over_gaps(partition, present, first, end)
            found = Found(batch, partition.ready(range(first, end) if present is None else present, most))
        position = end
        yield position, found if found and found.offsets else None


def raw_records(data: Readable, first: int, end: int) -> tuple[list[RawRecord], int]:
    """The records of read batches with offsets from `first` to before `end`, and the position behind them.

    Records that cannot be decoded are left out. In place of the first one of a batch is a record that has the
    whole batch as its value, as it is stored, and the reason in the header UNREADABLE.
    """
    view = memoryview(data)
    records: list[RawRecord] = []
    following = first
    for at, header in iter_headers(data):
        if header.next_offset > first and header.base_offset < end:
            if not header.is_control and header.count:
                records += _readable(view[at : at + header.length], header, first, end)
            following = min(header.next_offset, end)
    return records, following


def _readable(batch: memoryview, header: BatchHeader, first: int, end: int) -> list[RawRecord]:
    records: list[RawRecord] = []
    try:
        # From the base: which record is the first that cannot be decoded must not depend on `first`.
        records.extend(iter_raw(body_of(batch, header), header, header.base_offset, end))
    except BadRequest as error:  # `records` has those before
        at = max((each.offset + 1 for each in records), default=header.base_offset)
        headers = encode_section([(UNREADABLE, str(error).encode())])
        records.append(RawRecord(at, header.max_timestamp, None, bytes(batch), headers))
    return [each for each in records if first <= each.offset < end]


def first_unreadable(batch: Readable, header: BatchHeader) -> int | None:
    """The offset from which on the records of a batch cannot be decoded."""
    at = header.base_offset
    try:
        for record in iter_raw(body_of(batch, header), header, at, header.next_offset):
            at = max(at, record.offset + 1)
    except BadRequest:
        return at
    return None


def _present(batch: Readable, header: BatchHeader, first: int) -> list[int] | None:
    """The offsets that are left in a batch after compaction; None if it cannot be decoded."""
    base = header.base_offset
    try:
        offsets = [base + span.offset_delta for span in iter_spans(body_of(batch, header), header)]
    except BadRequest:
        return None
    return [offset for offset in offsets if offset >= first]


def _pass_over_gaps(partition: SubscribedPartition, present: Sequence[int], first: int, end: int) -> None:
    for offset in present:
        partition.pass_over(first, offset)
        first = offset + 1
    partition.pass_over(first, end)
