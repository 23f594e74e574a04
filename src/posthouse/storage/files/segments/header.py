"""The header of a segment file: the identity of the segment. Files of older versions have no header.

    offset  size  field
         0     4  magic         "PHSG"
         4     4  crc           CRC32C of byte 8 to 48
         8     4  version       1
        12    16  topic id
        28     4  partition
        32     8  base offset
        40     4  generation    0, or that of the compaction that wrote the file
        44     4  zero

The path of a file has the same identity. If the two differ, the file was moved or swapped with another: it is
*misplaced*. It stays unchanged, and its records are not served. Only the header shows this, because batches
of two partitions may have equal offsets and right checksums. The catalog records which segments have a
header: a file of an older version in the place of one is misplaced too. A header that is damaged or cannot be
read proves nothing, and does not make the segment unreadable.

A file without a header begins with a batch, whose first bytes are an offset; no offset is as high as the
magic.
"""

import errno
import logging
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from posthouse.model.errors import CorruptBatch, DataDamaged, UnsupportedFormat
from posthouse.model.ids import PartitionId, TopicId
from posthouse.records.batch import HEADER_SIZE, parse_header
from posthouse.storage.files.segments.segment import HEADER_BYTES, Segment, parse_segment_name, segment_name
from posthouse.storage.files.system.disk import Disk

log = logging.getLogger(__name__)

MAGIC = b"PHSG"
VERSION = 1
MISPLACED = ".misplaced"
"""Suffix of a misplaced file that recovery had to move away."""
UNNAMED = "a segment that an older version of Posthouse wrote"

_HEADER = Struct(">4sII16sIqI4x")
_UNDER_CRC_AT = 8
assert _HEADER.size == HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Identity:
    partition: PartitionId
    base_offset: int
    generation: int

    def __str__(self) -> str:
        name = segment_name(self.partition.index, self.base_offset, self.generation)
        return f"topics/{self.partition.topic.hex()}/{name}"

    def header(self) -> bytes:
        id = self.partition
        data = bytearray(
            _HEADER.pack(MAGIC, 0, VERSION, id.topic, id.index, self.base_offset, self.generation)
        )
        data[4:8] = crc32c(memoryview(data)[_UNDER_CRC_AT:]).to_bytes(4, "big")
        return bytes(data)

    @property
    def checksum(self) -> int:
        """The seed of the checksums of its index, so that the index of another segment is rejected."""
        return crc32c(self.header())


def identity_of(path: str) -> Identity:
    """The identity that the path stands for."""
    directory, _, name = path.rpartition("/")
    parsed = parse_segment_name(name)
    assert parsed is not None, path
    topic = TopicId(bytes.fromhex(directory.rpartition("/")[2]))
    return Identity(PartitionId(topic, parsed.partition), parsed.base_offset, parsed.generation)


def index_seed(segment: Segment) -> int:
    return identity_of(segment.path).checksum if segment.has_header else 0


def decode_header(data: bytes | bytearray) -> Identity | None:
    """The identity in the first bytes of a file, None if they are not a whole header."""
    if len(data) < HEADER_BYTES or data[:4] != MAGIC:
        return None
    _, crc, version, topic, partition, base_offset, generation = _HEADER.unpack_from(data)
    if version != VERSION or crc32c(data[_UNDER_CRC_AT:HEADER_BYTES]) != crc:
        return None
    return Identity(PartitionId(TopicId(topic), partition), base_offset, generation)


@dataclass(frozen=True, slots=True)
class SegmentStart:
    """The content of the first bytes of a segment file."""

    identity: Identity | None
    is_batch: bool
    """The file begins with a batch, so it has no header."""

    def misplaced(self, path: str, *, has_header: bool = False) -> Identity | str | None:
        """The identity of the file if it differs from that of `path`; None if it is the same or unknown."""
        if self.identity is not None:
            return None if self.identity == identity_of(path) else self.identity
        return UNNAMED if has_header and self.is_batch else None


_UNKNOWN = SegmentStart(None, is_batch=False)


def start_of(data: bytes | bytearray) -> SegmentStart:
    identity = decode_header(data)
    try:
        return SegmentStart(identity, identity is None and parse_header(data).base_offset >= 0)
    except (CorruptBatch, UnsupportedFormat):
        return SegmentStart(identity, is_batch=False)


def read_start(disk: Disk, path: str) -> SegmentStart:
    """Read the start of a file. For a missing or unreadable file the result says nothing."""
    try:
        handle = disk.open(path)
        try:
            return start_of(disk.read(handle, HEADER_SIZE, 0))
        finally:
            disk.close(handle)
    except FileNotFoundError:
        return _UNKNOWN
    except OSError as error:  # one bad sector must not keep the other segments from being served
        _report_unreadable(path, error)
        return _UNKNOWN


def check_identity(disk: Disk, handle: int, path: str, wait: bool) -> None:
    """Raises DataDamaged if the file that was opened as `path` is another segment."""
    read = disk.read if wait else disk.read_now
    try:
        data = read(handle, HEADER_SIZE, 0)
    except OSError as error:  # the rest of the segment may still be readable
        _report_unreadable(path, error)
        return
    if data is None:
        raise BlockingIOError(errno.EAGAIN, "the start of the file is not in memory", path)
    other = start_of(data).misplaced(path)
    if other is not None:
        raise DataDamaged(f"{path} is {other}: it was moved or swapped with another file")


def _report_unreadable(path: str, error: OSError) -> None:
    log.error(
        "%s: its first bytes cannot be read (%s), so its identity is not checked. Look for disk errors in "
        "the system's log; 'posthouse log verify' shows all damage",
        path,
        error,
    )


def remove_segment(disk: Disk, segment: Segment) -> None:
    """Delete the segment's files, except a misplaced file of another segment."""
    other = read_start(disk, segment.path).misplaced(segment.path)
    if other is None:
        disk.remove(segment.path)
        disk.remove(segment.index_path)
    else:
        log.error("%s: not deleted, because it is %s. Move it back", segment.path, other)
