"""Reading the journal: whole frames, and gaps between them.

The format is described in `journal`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from posthouse.model.errors import DataDamaged
from posthouse.storage.files.journal.head import Head
from posthouse.storage.files.journal.journal import (
    APPEND,
    FRAME_HEADER,
    FRAME_MAGIC,
    HEADER_CRC_AT,
    OPERATION,
    PUT,
    PUT_OPERATION,
    RANGE,
    REMOVED,
    UNDER_CRC_AT,
    JournalFile,
    file_name,
    journal_files,
)
from posthouse.storage.files.system.disk import Disk


class JournalEntry(NamedTuple):
    """One operation as stored in the journal."""

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
    entries: list[JournalEntry | PutEntry]
    synced: int
    """The existence of this frame proves that all frames up to this number were synced."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Frames that were written and cannot be read."""

    path: str
    position: int
    first: int
    next: int
    """Equal to `first` if the number of missing frames is unknown: the file was changed and may have held
    more."""
    is_last: bool = False
    """Whether the missing frames lie behind `position`; otherwise they lie before it."""
    reason: str = ""

    @property
    def frames(self) -> str:
        if self.next == self.first:
            return f"frames from {self.first} on, if there were any"
        return (
            f"frame {self.first}"
            if self.next == self.first + 1
            else f"frames {self.first} to {self.next - 1}"
        )

    def __str__(self) -> str:
        reason = f"{self.reason}: " if self.reason else ""
        where = "behind" if self.is_last else "before"
        return f"{self.path}: {reason}{self.frames} {where} byte {self.position} cannot be read"


def read_journal(
    disk: Disk, directory: str, after: int | None, head: Head | None = None
) -> Iterator[Frame | Gap]:
    """Every frame with a number above `after`, in order. Missing frames are returned as a Gap.

    With `after` None all frames are read. `head` proves frames, and a file, that may be missing at the end.
    """
    wanted = None if after is None else after + 1
    place, announced = (directory, 0), 0
    files = journal_files(disk, directory)
    for file in files:
        if wanted is not None and file.first > wanted:
            yield Gap(file.path, 0, wanted, file.first)
        wanted = file.first if wanted is None else max(wanted, file.first)
        scan = _Scan(disk, file)
        synced = file.first - 1  # the previous file is synced before a new file begins
        for position, number, entries in scan.frames():
            if number >= wanted:
                if number > wanted:
                    yield Gap(file.path, position, wanted, number)
                yield Frame(number, entries, synced)
                wanted = number + 1
            if any(isinstance(entry, PutEntry) or entry.kind != RANGE for entry in entries):
                synced = number  # frame n+1 is written only after frame n is synced
        place, announced = (file.path, scan.end), max(announced, scan.announced)
    if wanted is None:
        wanted = 1 if head is None else head.first
    next_number = max(announced, 0 if head is None else head.written + 1)
    if next_number > wanted:
        yield Gap(*place, wanted, next_number, True, _wrong_file(disk, directory, head))
    elif reason := _wrong_file(disk, directory, head):
        yield Gap(*place, wanted, wanted, True, reason)
    elif any(disk.size(file.path) == 0 for file in files):
        yield Gap(*place, wanted, wanted, True, "the file is empty")


def _wrong_file(disk: Disk, directory: str, head: Head | None) -> str:
    """Why the file that the head names is wrong; empty if it is as expected."""
    if head is None or not head.names_file:
        return ""
    name = file_name(head.first, head.salt)
    size = disk.size(f"{directory}/{name}")
    if size < 0:
        return f"{name} is missing"
    return f"{name} has {size} bytes of {head.file_bytes}" if size < head.file_bytes else ""


class _Scan:
    """One pass over a journal file."""

    def __init__(self, disk: Disk, file: JournalFile) -> None:
        self._file = file
        handle = disk.open(file.path)
        try:
            self._data = disk.read(handle, disk.size(file.path), 0)
        finally:
            disk.close(handle)
        self.end = 0
        """The end of the last good frame."""
        self.announced = 0
        """The highest number in a valid header of a torn frame."""

    def frames(self) -> Iterator[tuple[int, int, list[JournalEntry | PutEntry]]]:
        """The good frames: position, number and operations of each."""
        data, view = self._data, memoryview(self._data)
        number = self._file.first
        position = data.find(FRAME_MAGIC)
        while position >= 0:
            announced = _announced(view, position, number, self._file.salt)
            size = _frame_size(view, position, self._file.salt) if announced else 0
            if size == 0:
                self.announced = max(self.announced, announced)
                position = data.find(FRAME_MAGIC, position + 1)
                continue
            number = announced + 1
            position += size
            self.end = position
            yield position - size, announced, _entries(view, position - size, size)
            if not data.startswith(FRAME_MAGIC, position):
                position = data.find(FRAME_MAGIC, position)


def frames_in(disk: Disk, file: JournalFile) -> list[tuple[int, int, list[JournalEntry | PutEntry]]]:
    """The good frames of one file: position, number and operations of each."""
    return list(_Scan(disk, file).frames())


def _announced(data: memoryview, position: int, at_least: int, salt: bytes) -> int:
    """The frame number in a valid header at `position`; 0 if there is none or the number is too low."""
    if position + FRAME_HEADER.size > len(data):
        return 0
    magic, _, number, _, header_crc = FRAME_HEADER.unpack_from(data, position)
    if magic != FRAME_MAGIC or number < at_least:
        return 0
    under_crc = data[position + UNDER_CRC_AT : position + HEADER_CRC_AT]
    return number if crc32c(under_crc, crc32c(salt)) == header_crc else 0


def _frame_size(data: memoryview, position: int, salt: bytes) -> int:
    """The size of the frame at `position`, 0 if the frame is not whole."""
    _, crc, _, length, _ = FRAME_HEADER.unpack_from(data, position)
    size: int = FRAME_HEADER.size + length
    if position + size > len(data):
        return 0
    under_crc = data[position + UNDER_CRC_AT : position + size]
    return size if crc32c(under_crc, crc32c(salt)) == crc else 0


def _entries(data: memoryview, position: int, size: int) -> list[JournalEntry | PutEntry]:
    """The operations of a frame. Raises DataDamaged if they do not end where the frame ends."""
    begin, end = position + FRAME_HEADER.size, position + size
    try:
        entries, position = _read_entries(data[:end], begin)
    except StructError:
        position = -1
    if position != end:
        raise DataDamaged(f"the operations of the journal's frame at byte {begin} cannot be read")
    return entries


def _read_entries(data: memoryview, position: int) -> tuple[list[JournalEntry | PutEntry], int]:
    entries: list[JournalEntry | PutEntry] = []
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
        entries.append(JournalEntry._make((*fields, batch)))
    return entries, position


def _put_entry(data: memoryview, position: int) -> tuple[PutEntry, int]:
    _, space, key_length, value_length = PUT_OPERATION.unpack_from(data, position)
    position += PUT_OPERATION.size
    key = bytes(data[position : position + key_length])
    position += key_length
    if value_length == REMOVED:
        return PutEntry(space, key, None), position
    return PutEntry(space, key, bytes(data[position : position + value_length])), position + value_length
