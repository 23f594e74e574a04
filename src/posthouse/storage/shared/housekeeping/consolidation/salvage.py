"""What is left of a damaged run: its good batches, and an empty batch in the place of the lost ones.

The batches of a run have no offsets of their own: each begins where the one before it ends. So the batches
before the first damaged one are counted from the first offset of the run, those behind the last damaged one
back from its last offset. What lies between is lost: the empty batch for which `is_damage` is true stands for
it, as in reads of the local engine.
"""

from typing import NamedTuple

from posthouse.model.errors import CorruptBatch, UnsupportedFormat
from posthouse.records.batch import (
    DAMAGE_BIT,
    LEADER_EPOCH,
    BatchHeader,
    Readable,
    parse_header,
    stamp,
    verify_crc,
)
from posthouse.records.spans import filler
from posthouse.storage.shared.reads.runs import RunRow


class _Found(NamedTuple):
    position: int
    header: BatchHeader
    is_good: bool


def salvaged(run: RunRow, data: Readable) -> bytearray:
    """Batches with offsets for all offsets of a run whose bytes `data` are damaged, too few or missing."""
    found, is_complete = _batches(data)
    is_complete = is_complete and len(data) == run.size
    first, last = 0, len(found)
    begin, end = run.base, run.last + 1
    while first < last and found[first].is_good:
        begin += found[first].header.last_offset_delta + 1
        first += 1
    if is_complete:
        while last > first and found[last - 1].is_good:
            last -= 1
            end -= found[last].header.last_offset_delta + 1
    if begin >= end:
        # The counts of batches that look good do not fit: it is not known which of them are wrong.
        begin, end, first, last = run.base, run.last + 1, 0, len(found)
    made = bytearray()
    offset = run.base
    for each in found[:first]:
        made += _stamped(data, each, offset)
        offset += each.header.last_offset_delta + 1
    for lost in filler(begin, end, DAMAGE_BIT):
        made += lost
    offset = end
    for each in found[last:] if is_complete else ():
        made += _stamped(data, each, offset)
        offset += each.header.last_offset_delta + 1
    return made


def _batches(data: Readable) -> tuple[list[_Found], bool]:
    """The batches that can be told apart, and whether they fill the data."""
    found: list[_Found] = []
    position = 0
    while position < len(data):
        try:
            header = parse_header(data, position)
        except (CorruptBatch, UnsupportedFormat):
            return found, False
        if position + header.length > len(data):
            return found, False
        is_good = header.last_offset_delta >= 0 and verify_crc(data, position, header.length)
        found.append(_Found(position, header, is_good))
        position += header.length
    return found, True


def _stamped(data: Readable, found: _Found, offset: int) -> bytearray:
    batch = bytearray(memoryview(data)[found.position : found.position + found.header.length])
    stamp(batch, offset, LEADER_EPOCH)
    return batch
