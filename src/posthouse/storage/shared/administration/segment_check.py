"""Verification of one segment: the bytes that lie in an object, and its index."""

from posthouse.records.batch import Readable
from posthouse.storage.files.segments.header import Identity, decode_header
from posthouse.storage.files.segments.index import decode_blocks
from posthouse.storage.files.segments.reader import walk
from posthouse.storage.files.segments.segment import HEADER_BYTES


class SegmentCheck:
    """Problems of a segment that holds the offsets from that of its identity to before `next_offset`."""

    def __init__(self, data: bytes, identity: Identity, next_offset: int, index: Readable) -> None:
        self.problems: list[str] = []
        self.batches = 0
        self.records = 0
        found = decode_header(data[:HEADER_BYTES])
        if found is None:
            self.problems.append("its header is damaged")
        elif found != identity:
            self.problems.append(f"it is {found} instead of {identity}")
        else:
            self._check_batches(data, identity, next_offset, index)

    def _check_batches(self, data: bytes, identity: Identity, next_offset: int, index: Readable) -> None:
        decoded, is_whole = decode_blocks(bytes(index), 0, len(data), identity.checksum)
        if not is_whole or decoded.covered != len(data):
            self.problems.append("its index is damaged")
        entries = {entry.position: entry.base_offset for entry in decoded.entries()}
        expected = identity.base_offset
        for step in walk(
            lambda size, at: data[at : at + size], 0, len(data), identity.base_offset, next_offset
        ):
            if step.header is None:
                damage = step.damage
                assert damage is not None
                self.problems.append(f"{damage} cannot be read")
                expected = damage.next_offset
                entries = {at: base for at, base in entries.items() if not damage.position <= at < damage.end}
                continue
            if step.header.is_damage:
                lost = f"offsets {step.header.base_offset} to {step.header.last_offset}"
                self.problems.append(f"{lost} were damaged before consolidation and are lost")
            self.batches += 1
            self.records += step.header.count
            expected = step.header.next_offset
            if entries.pop(step.position, step.header.base_offset) != step.header.base_offset:
                self.problems.append(f"its index has another offset for byte {step.position}")
        if expected != next_offset:
            self.problems.append(f"it ends at offset {expected - 1} instead of {next_offset - 1}")
        if entries:
            self.problems.append(f"its index points to byte {min(entries)}, where no batch begins")
