"""The journal: everything that was committed since the last checkpoint, in commit order.

Files `journal/<first number>-<salt>.wal`: frames from byte 0 on, big-endian:

    offset  size  field
         0     4  magic         "PHFR"
         4     4  crc           CRC32C of the file's salt, then byte 8 to the end
         8     8  number        one more than the frame before
        16     4  length        of the operations that follow
        20     4  header crc    CRC32C of the file's salt, then byte 8 to 20: bytes of a client that look like
                                the headers of many long frames must not make recovery check them all

A frame is one group of commits and holds their operations one after the other:

    offset  size  field
         0     1  kind          1 append, 2 range, 3 trim
         1    16  topic id
        17     4  partition
        21     8  segment       base offset of the segment
        29     8  position      in the segment
        37     8  offset        of the first record; for trim the new start
        45     8  next offset   of the record that comes after the last one
        53     4  length        of the batch, or of the range
        57     …  the batch     for append only

But for a put, which is shorter:

    offset  size  field
         0     1  kind          4
         1     1  space
         2     2  length of the key
         4     4  length of the value, 2³²-1 to remove it
         8     …  key, value

An *append* carries its batch. A *range* says that these bytes of a segment were written before the frame
was, but not synced: what a topic with durability `os` does. They have to be looked at after a crash.

Invariant: frame n+1 is written only when frame n is synced (or asked for no sync). So after a crash only
the last frame can be torn: it was never acknowledged, and it is cut. A bad frame with good ones behind it
is damage: it is reported, and the good ones count. Files are allocated before use and used again after
their content is checkpointed. The random salt in a file's name keeps apart the frames of its lives, and
frames from bytes that a client sent to look like one.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from posthouse.model.errors import DataDamaged
from posthouse.storage.disk import DISK_FULL, Buffer, Disk, SyncFailed, synced

log = logging.getLogger(__name__)

FRAME_MAGIC = b"PHFR"
FRAME_HEADER = Struct(">4sIQII")
OPERATION = Struct(">B16sIqqqqI")
PUT_OPERATION = Struct(">BBHI")
_NUMBER_AND_LENGTH = Struct(">QI")
_HEADER_CRC = Struct(">I")
_UNDER_CRC_AT = 8
_HEADER_CRC_AT = 20

APPEND = 1
RANGE = 2
TRIM = 3
PUT = 4
REMOVED = 2**32 - 1

SPARE = "spare"
SALT_BYTES = 8
_FILE_NAME = re.compile(r"(\d{20})-([0-9a-f]{16})\.wal")


class Entry(NamedTuple):
    """One operation as it lies in the journal."""

    kind: int
    topic: bytes
    partition: int
    segment: int
    position: int
    offset: int
    next_offset: int
    length: int
    batch: memoryview | None


class PutEntry(NamedTuple):
    space: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Frame:
    number: int
    entries: list[Entry | PutEntry]


@dataclass(frozen=True, slots=True)
class Gap:
    """Frames that should be there and are not to be read."""

    path: str
    position: int
    first: int
    next: int

    def __str__(self) -> str:
        return f"{self.path} at byte {self.position}: frames {self.first} to {self.next - 1}"


@dataclass(slots=True)
class _File:
    path: str
    salt: bytes
    last: int


class Journal:
    """The writing side. Used by the flusher thread alone."""

    def __init__(
        self, disk: Disk, directory: str, file_bytes: int, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._file_bytes = file_bytes
        self._random_bytes = random_bytes
        self._old: list[_File] = []
        self._current: _File | None = None
        self._handle = -1
        self._position = 0
        self._written_at = 0
        self._next = 1

    def start(self, number: int) -> None:
        """Begin a new file whose first frame is `number`; files that are there already count as old."""
        for file in journal_files(self._disk, self._directory):
            self._sync_old(file.path)
            self._old.append(_File(file.path, file.salt, number - 1))
        self._next = number
        try:
            self._roll()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            log.warning("there is no space for a journal: nothing can be written until there is")

    @property
    def has_old_files(self) -> bool:
        """Whether a checkpoint would give any back."""
        return bool(self._old)

    def _sync_old(self, path: str) -> None:
        """What was replayed from it will be served, and being readable does not mean being durable."""
        handle = self._disk.open(path)
        try:
            synced(self._disk, handle)
        finally:
            self._disk.close(handle)

    def write(self, operations: Sequence[Buffer], size: int, *, sync: bool) -> int:
        """Write one frame and return its number. It counts only if this returns."""
        total = FRAME_HEADER.size + size
        if self._current is None or 0 < self._position > self._file_bytes - total:
            self._roll()
        assert self._current is not None
        number = self._next
        header_crc = crc32c(self._current.salt + _NUMBER_AND_LENGTH.pack(number, size))
        crc = crc32c(_HEADER_CRC.pack(header_crc), header_crc)
        for buffer in operations:
            crc = crc32c(buffer, crc)
        header = FRAME_HEADER.pack(FRAME_MAGIC, crc, number, size, header_crc)
        self._disk.write(self._handle, [header, *operations], self._position)
        if sync:
            synced(self._disk, self._handle)
        self._written_at = self._position
        self._position += total
        self._next = number + 1
        self._current.last = number
        return number

    def retract(self) -> None:
        """Take back the last frame, of which nobody was told. If that fails, nothing can go on."""
        assert self._current is not None
        try:
            self._disk.write(self._handle, [bytes(FRAME_HEADER.size)], self._written_at)
        except OSError as error:
            raise SyncFailed(str(error)) from error
        synced(self._disk, self._handle)
        self._position = self._written_at
        self._next -= 1
        self._current.last -= 1

    def release(self, number: int) -> None:
        """Frames up to `number` are checkpointed: give their files back, one as a spare."""
        released = [file for file in self._old if file.last <= number]
        for file in released:
            self._old.remove(file)
            self._retire(file)
        if released:
            self._disk.sync_directory(self._directory)

    def _retire(self, file: _File) -> None:
        spare = f"{self._directory}/{SPARE}"
        if self._disk.size(spare) < 0 and self._disk.size(file.path) == self._file_bytes:
            self._disk.rename(file.path, spare)
        else:
            self._disk.remove(file.path)

    def close(self, *, everything_checkpointed: bool) -> None:
        """Let go of the file; with everything checkpointed there is nothing to read at the next start."""
        if self._current is not None:
            self._disk.close(self._handle)
            if everything_checkpointed:
                self._retire(self._current)
            self._current = None

    def _roll(self) -> None:
        """Open the next file. Nothing changes if that fails: the disk may be full now and not later."""
        if self._current is not None:
            synced(self._disk, self._handle)
        salt = self._random_bytes(SALT_BYTES)
        path = f"{self._directory}/{self._next:020d}-{salt.hex()}.wal"
        handle = self._open_new(path)
        if self._current is not None:
            self._disk.close(self._handle)
            self._old.append(self._current)
        self._handle = handle
        self._current = _File(path, salt, self._next - 1)
        self._position = 0

    def _open_new(self, path: str) -> int:
        spare = f"{self._directory}/{SPARE}"
        handle = self._disk.open(spare, create=True)
        try:
            self._disk.allocate(handle, self._file_bytes)
            self._disk.rename(spare, path)
        except OSError:
            self._disk.close(handle)
            self._disk.remove(spare)  # what it got of a nearly full disk is needed elsewhere
            raise
        synced(self._disk, handle)
        try:
            self._disk.sync_directory(self._directory)
        except OSError as error:
            raise SyncFailed(str(error)) from error
        return handle


@dataclass(frozen=True, slots=True)
class JournalFile:
    path: str
    first: int
    salt: bytes


def journal_files(disk: Disk, directory: str) -> list[JournalFile]:
    """The journal's files, oldest first."""
    files = []
    for name in disk.names(directory):
        match = _FILE_NAME.fullmatch(name)
        if match:
            files.append(JournalFile(f"{directory}/{name}", int(match[1]), bytes.fromhex(match[2])))
    return files


def read_journal(disk: Disk, directory: str, after: int | None) -> Iterator[Frame | Gap]:
    """Every frame with a number above `after`, in order; what is missing among them comes as a Gap.

    None reads whatever there is.
    """
    wanted = None if after is None else after + 1
    for file in journal_files(disk, directory):
        if wanted is not None and file.first > wanted:
            yield Gap(file.path, 0, wanted, file.first)
        wanted = file.first if wanted is None else max(wanted, file.first)
        for position, number, entries in _frames(disk, file):
            if number < wanted:
                continue
            if number > wanted:
                yield Gap(file.path, position, wanted, number)
            yield Frame(number, entries)
            wanted = number + 1


def _frames(disk: Disk, file: JournalFile) -> Iterator[tuple[int, int, list[Entry | PutEntry]]]:
    """The good frames of one file: where each begins, its number and its operations."""
    handle = disk.open(file.path)
    try:
        data = disk.read(handle, disk.size(file.path), 0)
    finally:
        disk.close(handle)
    view = memoryview(data)
    number = file.first
    position = data.find(FRAME_MAGIC)
    while position >= 0:
        size = _frame_size(view, position, number, file.salt)
        if size == 0:
            position = data.find(FRAME_MAGIC, position + 1)
            continue
        number = FRAME_HEADER.unpack_from(view, position)[2]
        yield position, number, _entries(view, position, size)
        number += 1
        position += size
        if not data.startswith(FRAME_MAGIC, position):
            position = data.find(FRAME_MAGIC, position)


def _frame_size(data: memoryview, position: int, at_least: int, salt: bytes) -> int:
    """The size of the good frame that begins here, 0 if there is none or its number is too low."""
    if position + FRAME_HEADER.size > len(data):
        return 0
    magic, crc, number, length, header_crc = FRAME_HEADER.unpack_from(data, position)
    size: int = FRAME_HEADER.size + length
    if magic != FRAME_MAGIC or number < at_least or position + size > len(data):
        return 0
    if crc32c(data[position + _UNDER_CRC_AT : position + _HEADER_CRC_AT], crc32c(salt)) != header_crc:
        return 0
    under_crc = data[position + _UNDER_CRC_AT : position + size]
    return size if crc32c(under_crc, crc32c(salt)) == crc else 0


def _entries(data: memoryview, position: int, size: int) -> list[Entry | PutEntry]:
    """Raises DataDamaged where they do not end where the frame does, although its checksum is right."""
    begin, end = position + FRAME_HEADER.size, position + size
    try:
        entries, position = _read_entries(data[:end], begin)
    except StructError:
        position = -1
    if position != end:
        raise DataDamaged(f"the operations of the journal's frame at byte {begin} cannot be read")
    return entries


def _read_entries(data: memoryview, position: int) -> tuple[list[Entry | PutEntry], int]:
    entries: list[Entry | PutEntry] = []
    while position < len(data):
        if data[position] == PUT:
            entry, position = _put_entry(data, position)
            entries.append(entry)
            continue
        fields = OPERATION.unpack_from(data, position)
        position += OPERATION.size
        kind, length = fields[0], fields[-1]
        batch = None
        if kind == APPEND:
            batch = data[position : position + length]
            position += length
        entries.append(Entry._make((*fields, batch)))
    return entries, position


def _put_entry(data: memoryview, position: int) -> tuple[PutEntry, int]:
    _, space, key_length, value_length = PUT_OPERATION.unpack_from(data, position)
    position += PUT_OPERATION.size
    key = bytes(data[position : position + key_length])
    position += key_length
    if value_length == REMOVED:
        return PutEntry(space, key, None), position
    return PutEntry(space, key, bytes(data[position : position + value_length])), position + value_length
