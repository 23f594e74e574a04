"""Which batches of a read-committed fetch are visible.

A read returns whole batches, also those of aborted transactions, with a list of (producer id, first offset)
of the aborted transactions. Batches are walked in log order: from an aborted transaction's first offset on,
transactional batches of its producer are skipped, up to the abort marker. The producer's next transaction
begins behind it. Markers themselves are never shown.

Every answer lists all aborted transactions that overlap its data, so there is no state between fetches. Only
headers are parsed, and markers decoded.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from posthouse.records.batch import BatchHeader, Readable, iter_headers
from posthouse.records.control import is_commit


class AbortedProducer(NamedTuple):
    """An aborted transaction: its producer and its first offset."""

    producer_id: int
    first_offset: int


def visible_batches(data: Readable, aborted: Iterable[AbortedProducer]) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every visible whole batch in `data`."""
    ahead = deque(sorted(aborted, key=lambda each: each.first_offset))
    begun: set[int] = set()
    for position, header in iter_headers(data):
        while ahead and ahead[0].first_offset <= header.base_offset:
            begun.add(ahead.popleft().producer_id)
        if header.is_control:
            if header.producer_id in begun and _is_abort(data, position, header):
                begun.remove(header.producer_id)
        elif not (header.is_transactional and header.producer_id in begun):
            yield position, header


def _is_abort(data: Readable, position: int, header: BatchHeader) -> bool:
    # Compaction may leave a marker's batch without the marker.
    return header.count > 0 and not is_commit(memoryview(data)[position : position + header.length])
