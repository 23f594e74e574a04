"""The ends of zstd frames (RFC 8878), found from their headers without decompressing.

frame      magic FD2FB528 (little-endian), header, blocks, 4-byte checksum if the header says so
header     descriptor (bits 0-1 dictionary id size, 2 checksum, 3 reserved, 5 single segment,
           6-7 content size), window (absent in a single segment), dictionary id, content size
block      3 bytes, little-endian: bit 0 last, bits 1-2 type, the rest size; then its bytes
skippable  magic 184D2A50 to 184D2A5F, 4-byte length, that many bytes
"""

from struct import Struct
from struct import error as StructError

_FRAME_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0

_DICTIONARY_ID_SIZES = (0, 1, 2, 4)
_CONTENT_SIZE_SIZES = (0, 2, 4, 8)

_RLE_BLOCK = 1
_RESERVED_BLOCK = 3

_UINT32 = Struct("<I")


def are_whole_frames(data: memoryview) -> bool:
    """Whether `data` is one or more frames and nothing else."""
    pos, end = 0, len(data)
    try:
        while pos < end:
            pos = _frame_end(data, pos)
    except (IndexError, StructError):
        return False
    return pos == end and end > 0


def _frame_end(data: memoryview, pos: int) -> int:
    magic: int = _UINT32.unpack_from(data, pos)[0]
    if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
        length: int = _UINT32.unpack_from(data, pos + 4)[0]
        return pos + 8 + length
    if magic != _FRAME_MAGIC:
        return len(data) + 1
    descriptor = data[pos + 4]
    pos += 5 + _header_tail_size(descriptor)
    last = 0
    while not last:
        block = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        if kind == _RESERVED_BLOCK:
            return len(data) + 1
        pos += 4 if kind == _RLE_BLOCK else 3 + size
    return pos + 4 if descriptor & 0b100 else pos


def _header_tail_size(descriptor: int) -> int:
    single_segment = descriptor >> 5 & 1
    content_size = _CONTENT_SIZE_SIZES[descriptor >> 6]
    if single_segment and not content_size:
        content_size = 1
    return (0 if single_segment else 1) + _DICTIONARY_ID_SIZES[descriptor & 3] + content_size
