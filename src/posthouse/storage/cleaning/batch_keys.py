"""The keys of a batch, for the map of latest offsets."""

from posthouse.model.errors import CorruptBatch, RecordTooLarge
from posthouse.records.batch import BatchHeader, Readable
from posthouse.records.record import body_of
from posthouse.records.spans import iter_spans
from posthouse.storage.cleaning.key_map import KeyMap


def put_keys(keys: KeyMap, batch: Readable, header: BatchHeader) -> None:
    """Set the offsets of the batch's keys. A batch that cannot be decoded has none; the cleaner keeps it."""
    try:
        spans = list(iter_spans(body_of(batch, header), header))
    except (CorruptBatch, RecordTooLarge):
        return  # the cleaner logs it
    put, base = keys.put, header.base_offset
    for span in spans:
        if span.key is not None:
            put(span.key, base + span.offset_delta)
