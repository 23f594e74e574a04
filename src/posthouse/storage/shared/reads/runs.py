"""Runs and segments of a log, as rows, and the batches of a run.

A run is stored without offsets: `batches_of` stamps them. A run of references has no bytes: its batch is made
of `refs`. A segment is byte for byte a segment file.
"""

from dataclasses import dataclass

from posthouse.model.errors import CorruptBatch, DataDamaged, UnsupportedFormat
from posthouse.records.batch import LEADER_EPOCH, Readable, parse_header, stamp, verify_crc
from posthouse.records.references import references_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """Batches of one log that one commit wrote, without offsets.

    Their bytes are `size` bytes from `pos` on in `inline` or in `object`, or the batch is made of `refs`.
    """

    log: int
    base: int
    last: int
    slot: int
    inline: int | None
    object: int | None
    key: str | None
    """The key of `object`."""
    object_size: int | None
    pos: int
    size: int
    max_time: int
    created_ms: int
    refs: bytes | None

    @property
    def place(self) -> str:
        """Where the bytes are, for messages."""
        if self.refs is not None:
            return f"references in slot {self.slot}"
        where = f"inline data {self.inline} in slot {self.slot}" if self.object is None else self.key
        return f"bytes {self.pos} to {self.pos + self.size} of {where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow:
    """A segment file of `size` bytes from `pos` on in an object. Its index is read separately."""

    log: int
    base: int
    last: int
    object: int
    key: str
    object_size: int
    pos: int
    size: int
    max_time: int
    created_ms: int
    generation: int

    @property
    def place(self) -> str:
        """Where the bytes are, for messages."""
        return f"bytes {self.pos} to {self.pos + self.size} of {self.key}"


def batches_of(run: RunRow, data: Readable = b"", *, verify: bool = True) -> bytearray:
    """The batches of a run with their offsets: a copy of its bytes `data`, or made of its references.

    Raises DataDamaged unless the bytes are whole batches that cover the offsets of the run. With `verify`
    their checksums must be right, too.
    """
    if run.refs is None:
        return _stamped(run, data, verify=verify)
    try:
        batch = references_batch(run.refs, run.base)
    except CorruptBatch as error:
        raise damaged(run, str(error)) from None
    if parse_header(batch).last_offset != run.last:
        raise damaged(run, "the references cover other offsets")
    return batch


def _stamped(run: RunRow, data: Readable, *, verify: bool) -> bytearray:
    made = bytearray(data)
    size = len(made)
    if size != run.size:
        raise damaged(run, f"{size} bytes instead of {run.size}")
    position, offset = 0, run.base
    with memoryview(made) as view:
        while position < size:
            try:
                header = parse_header(made, position)
            except (CorruptBatch, UnsupportedFormat) as error:
                raise damaged(run, f"byte {position}: {error}") from None
            end = position + header.length
            if end > size or header.last_offset_delta < 0:
                raise damaged(run, f"byte {position}: the batch does not fit")
            if verify and not verify_crc(made, position, header.length):
                raise damaged(run, f"byte {position}: the batch does not match its checksum")
            stamp(view[position:end], offset, LEADER_EPOCH)
            offset += header.last_offset_delta + 1
            position = end
    if offset != run.last + 1:
        raise damaged(run, f"the batches end at offset {offset - 1}")
    return made


def damaged(run: RunRow, problem: str) -> DataDamaged:
    message = f"log {run.log}, offsets {run.base} to {run.last}, {run.place}: {problem}"
    return DataDamaged(message, run.last + 1)
