"""One file of the index: the entries of a range of offsets of one partition, sorted into buckets by hash.

File `<partition>-<first offset>-<end offset>.keys`, big-endian:

    offset  size  field
         0     4  magic            "PHKX"
         4     4  crc              CRC32C of bytes 8 to 63
         8    16  topic id
        24     4  partition
        28     4  count            of entries
        32     8  first offset
        40     8  end offset       the first one behind the range
        48     4  earliest         second of any entry
        52     4  latest
        56     4  last crc         checksum of the batch in which the range ends
        60     1  bits             of a hash that choose its bucket: there are 2^bits
        61     1  version          1
        62     2  flags            1: the records may change in a power cut (durability=os)
        64   8×b  directory        for each bucket: number of its first entry, CRC32C of the file's crc, the
                                   bucket's number, first and end entry, and its bytes
         …  12×n  buckets          each: hashes, offsets - first offset, seconds; 4 bytes each, sorted by hash
                                   and offset

Invariant: every name of every record of the range that the log had when the file was written has an entry.
Entries may be of records that are gone, or of other names: a hit is compared with the record. The file is
written under another name, synced and renamed, and never changed. A damaged one is deleted: its range is
indexed again, and read until then.
"""

import re
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from posthouse.broker.key_index.entries import Entries
from posthouse.model.ids import PartitionId, TopicId

Read: TypeAlias = Callable[[int, int], bytes]
"""Size and position; fewer bytes at the end of the file."""

HEADER_BYTES: Final = 64
_MAGIC: Final = b"PHKX"
_VERSION: Final = 1
_MAY_CHANGE: Final = 1
_HEADER: Final = Struct(">16sIIqqIIIBBH")
_PREFIX: Final = Struct(">4sI")
_PLACE: Final = Struct(">II")
_BUCKET: Final = Struct(">III")
_ENTRY_BYTES: Final = 12
_BUCKET_ENTRIES: Final = 256
"""On average: a bucket is read at once."""
_NAME: Final = re.compile(r"(\d{1,10})-(\d{20})-(\d{20})\.keys")


class DamagedIndex(Exception):
    """A file that does not have what was written."""


class FileName(NamedTuple):
    partition: int
    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.first:020d}-{self.end:020d}.keys"

    @classmethod
    def parse(cls, text: str) -> "FileName | None":
        found = _NAME.fullmatch(text)
        return cls(int(found[1]), int(found[2]), int(found[3])) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexHeader:
    partition: PartitionId
    count: int
    first: int
    end: int
    earliest: int
    latest: int
    last_crc: int
    bits: int
    crc: int
    may_change: bool

    @property
    def name(self) -> str:
        return str(FileName(self.partition.index, self.first, self.end))

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.buckets_at + self.count * _ENTRY_BYTES

    @property
    def buckets_at(self) -> int:
        return HEADER_BYTES + (_PLACE.size << self.bits)


def encode_file(partition: PartitionId, entries: Entries) -> tuple[IndexHeader, list[bytes]]:
    """The whole file."""
    count = len(entries)
    bits = (count // _BUCKET_ENTRIES).bit_length()
    packed = _HEADER.pack(
        partition.topic,
        partition.index,
        count,
        entries.first,
        entries.end,
        min(entries.seconds, default=0),
        max(entries.seconds, default=0),
        entries.last_crc,
        bits,
        _VERSION,
        _MAY_CHANGE if entries.may_change else 0,
    )
    header = decode_header(_PREFIX.pack(_MAGIC, crc32c(packed)) + packed)
    # Small lists are sorted, not a large one: sorting does not let other threads run.
    members: list[list[int]] = [[] for _ in range(1 << bits)]
    shift = 32 - bits
    for number, hash in enumerate(entries.hashes):
        members[hash >> shift].append(number)
    directory, buckets = bytearray(), []
    start = 0
    for number, chosen in enumerate(members):
        chosen.sort(key=entries.hashes.__getitem__)
        data = b"".join(
            _packed([column[each] for each in chosen])
            for column in (entries.hashes, entries.deltas, entries.seconds)
        )
        directory += _PLACE.pack(start, _bucket_crc(header, number, start, start + len(chosen), data))
        buckets.append(data)
        start += len(chosen)
    return header, [_PREFIX.pack(_MAGIC, header.crc), packed, bytes(directory), *buckets]


def decode_header(data: bytes) -> IndexHeader:
    """Raises DamagedIndex."""
    try:
        magic, crc = _PREFIX.unpack_from(data)
        fields = _HEADER.unpack_from(data, _PREFIX.size)
    except StructError:
        raise DamagedIndex("its header is cut off") from None
    if magic != _MAGIC or crc32c(data[_PREFIX.size : HEADER_BYTES]) != crc:
        raise DamagedIndex("its header does not match its checksum")
    topic, partition, count, first, end, earliest, latest, last_crc, bits, version, flags = fields
    if version != _VERSION:
        raise DamagedIndex(f"version {version} is not known")
    return IndexHeader(
        partition=PartitionId(TopicId(topic), partition),
        count=count,
        first=first,
        end=end,
        earliest=earliest,
        latest=latest,
        last_crc=last_crc,
        bits=bits,
        crc=crc,
        may_change=bool(flags & _MAY_CHANGE),
    )


def find_in_file(read: Read, header: IndexHeader, hash: int, earliest: int, latest: int) -> Sequence[int]:
    """As `Entries.find`. Raises DamagedIndex and OSError."""
    hashes, deltas, seconds = _bucket(read, header, hash >> 32 - header.bits)
    low = bisect_left(hashes, hash)
    high = bisect_right(hashes, hash, low)
    times = seconds[low:high]
    return [
        header.first + delta
        for delta, second in zip(deltas[low:high], times, strict=True)
        if earliest <= second <= latest
    ]


def decode_file(read: Read, header: IndexHeader) -> Entries:
    """All entries. Raises DamagedIndex and OSError."""
    columns = [_bucket(read, header, number) for number in range(1 << header.bits)]
    rows = sorted(row for column in columns for row in zip(column[1], column[0], column[2], strict=True))
    entries = Entries(header.first)
    entries.end, entries.last_crc, entries.may_change = header.end, header.last_crc, header.may_change
    entries.deltas = array("I", [row[0] for row in rows])
    entries.hashes = array("I", [row[1] for row in rows])
    entries.seconds = array("I", [row[2] for row in rows])
    return entries


def _bucket(read: Read, header: IndexHeader, number: int) -> "tuple[array[int], array[int], array[int]]":
    is_last = number == (1 << header.bits) - 1
    places = read(_PLACE.size * (1 if is_last else 2), HEADER_BYTES + number * _PLACE.size)
    try:
        start, crc = _PLACE.unpack_from(places)
        end = header.count if is_last else _PLACE.unpack_from(places, _PLACE.size)[0]
    except StructError:
        raise DamagedIndex("its directory is cut off") from None
    if not start <= end <= header.count:
        raise DamagedIndex(f"bucket {number} has entries {start} to {end} of {header.count}")
    count = end - start
    data = read(count * _ENTRY_BYTES, header.buckets_at + start * _ENTRY_BYTES) if count else b""
    if len(data) != count * _ENTRY_BYTES or _bucket_crc(header, number, start, end, data) != crc:
        raise DamagedIndex(f"bucket {number} does not match its checksum")
    third = len(data) // 3
    return _unpacked(data[:third]), _unpacked(data[third : 2 * third]), _unpacked(data[2 * third :])


def _bucket_crc(header: IndexHeader, number: int, start: int, end: int, data: bytes) -> int:
    return crc32c(data, crc32c(_BUCKET.pack(number, start, end), header.crc))


def _packed(values: Sequence[int]) -> bytes:
    column = array("I", values)
    if sys.byteorder == "little":
        column.byteswap()
    return column.tobytes()


def _unpacked(data: bytes) -> "array[int]":
    column = array("I")
    column.frombytes(data)
    if sys.byteorder == "little":
        column.byteswap()
    return column
