"""The keys of a schedule's entries."""

from collections.abc import Iterator

from posthouse.broker.schedule import keys
from posthouse.broker.schedule.bucket import Bucket
from posthouse.broker.stored_records import Piece
from posthouse.records.spans import iter_spans


def keys_in(piece: Piece, bucket: Bucket, offset: int) -> Iterator[tuple[int, bytes]]:
    """Offset and key of each entry from `offset` on."""
    log, pack = bucket.log, keys.pack
    for header, data in piece.batches:
        base_offset, base_timestamp = header.base_offset, header.base_timestamp
        for start, _, end, delta, timestamp, sequence, _ in iter_spans(data, header):
            at = base_offset + delta
            if offset <= at < piece.following:
                assert sequence is not None, "every entry has a sequence"
                yield at, pack(base_timestamp + timestamp, sequence, log, at, end - start)
