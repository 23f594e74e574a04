"""Entries of a piece of the log. Runs on a thread: batches may be compressed."""

from dataclasses import dataclass
from typing import Final

from posthouse.broker.key_index.entries import Entries, seconds_of
from posthouse.broker.key_index.names import name_hash
from posthouse.model.errors import BadRequest
from posthouse.records.batch import BatchHeader, Readable, iter_headers
from posthouse.records.raw import iter_raw
from posthouse.records.record import body_of
from posthouse.records.record_names import names_of

MOST_BATCH_ENTRIES: Final = 256 * 1024
"""Names in one batch. One with more is not indexed, and read by each search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """Either entries, or the end of a batch that cannot have any: it begins where the piece does."""

    entries: Entries
    skipped_to: int | None = None


def entries_of(data: Readable, first: int, end: int) -> Filled:
    """Of whole batches, which hold the offsets from `first` on; none of those from `end` on."""
    entries = Entries(first)
    view = memoryview(data)
    for at, header in iter_headers(view):
        if header.next_offset <= entries.end:
            continue
        if header.base_offset >= end:
            break
        before = len(entries)
        try:
            _add(entries, view[at : at + header.length], header, end)
            is_indexed = len(entries) - before <= MOST_BATCH_ENTRIES
        except BadRequest:
            is_indexed = False
        if not is_indexed:
            if entries.end == first:
                return Filled(entries=Entries(first), skipped_to=min(header.next_offset, end))
            for column in (entries.hashes, entries.deltas, entries.seconds):
                del column[before:]
            break
        entries.end = min(header.next_offset, end)
        entries.last_crc = header.crc
    return Filled(entries=entries)


def _add(entries: Entries, batch: memoryview, header: BatchHeader, end: int) -> None:
    if header.is_control or not header.count:
        return
    most = len(entries) + MOST_BATCH_ENTRIES
    for record in iter_raw(body_of(batch, header), header, entries.end, end):
        seconds = seconds_of(record.timestamp)
        for name in names_of(record.key, record.headers):
            entries.add(name_hash(name), record.offset, seconds)
        if len(entries) > most:
            return
