"""Which batches of a read-committed fetch a reader is shown.

A read returns whole batches, those of aborted transactions too; besides, (producer id, first offset) of the
aborted transactions is known. Batches are walked in the order of the log: from an aborted transaction's first
offset on, transactional batches of its producer are skipped, until the marker that says the abort. The
producer's next transaction begins behind it. Markers themselves are never shown.

Every answer lists all aborted transactions that reach into its data, so nothing is carried from one fetch to
the next. It works on headers alone: only markers are decoded.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from posthouse.records.batch import BatchHeader, Readable, iter_headers
from posthouse.records.control import is_commit


class AbortedProducer(NamedTuple):
    """A transaction that was aborted: whose, and where its first record lies."""

    producer_id: int
    first_offset: int


def visible_batches(data: Readable, aborted: Iterable[AbortedProducer]) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch in `data` that is to be shown."""
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
