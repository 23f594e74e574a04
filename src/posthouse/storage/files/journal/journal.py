"""The journal: all commits since the last checkpoint, in commit order.

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

An *append* carries its batch. A *range* refers to bytes that were written to a segment before the frame, but
not synced: topics with durability `os` use it. Recovery has to verify these bytes.

Invariant: frame n+1 is written only when frame n is synced (or asked for no sync). So after a crash only
the last frame can be torn: it was never acknowledged, and it is cut. A frame that cannot be read is damage if
any of these proves that it was acknowledged:

- the header of a frame with a higher number, whether or not that frame is whole;
- the file that follows, whose name has the number of its first frame;
- the journal's head (`journal_head`), which has the number of the last frame;

A file that the head names is damaged as well if it is missing, shorter than allocated, or empty. Damage is
reported, and the frames behind it are valid. Files are allocated before use and reused after their content is
checkpointed. The random salt in a file's name distinguishes its frames from those of its earlier uses, and
from bytes that a client sent to imitate a frame.
"""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from posthouse.storage.files.journal.head import NO_FILE, HeadWriter
from posthouse.storage.files.system.disk import DISK_FULL, Buffer, Disk, SyncFailed, synced

log = logging.getLogger(__name__)

FRAME_MAGIC = b"PHFR"
FRAME_HEADER = Struct(">4sIQII")
OPERATION = Struct(">B16sIqqqqI")
PUT_OPERATION = Struct(">BBHI")
_NUMBER_AND_LENGTH = Struct(">QI")
_HEADER_CRC = Struct(">I")
UNDER_CRC_AT = 8
HEADER_CRC_AT = 20

APPEND = 1
RANGE = 2
TRIM = 3
PUT = 4
REMOVED = 2**32 - 1

SPARE = "spare"
SALT_BYTES = 8
_FILE_NAME = re.compile(r"(\d{20})-([0-9a-f]{16})\.wal")


@dataclass(slots=True)
class _File:
    path: str
    salt: bytes
    last: int


class Journal:
    """The writer of the journal. Used by the flusher thread alone."""

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
        self._synced = 0
        self._head = HeadWriter(disk, head_path(directory))

    def start(self, number: int) -> None:
        """Begin a new file whose first frame is `number`; existing files become old files."""
        for file in journal_files(self._disk, self._directory):
            self._sync_old(file.path)
            self._old.append(_File(file.path, file.salt, number - 1))
        self._next = number
        self._synced = number - 1
        try:
            self._roll()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            log.warning("%s: no space for a journal file, all writes fail until there is", self._directory)
            self._begin_without_file()

    def _begin_without_file(self) -> None:
        """Write a head without a file: the head must not name a file that the next checkpoint removes."""
        try:
            self._head.begin(NO_FILE, self._next, 0)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            self._head.close()
            self._disk.remove(head_path(self._directory))

    @property
    def has_head(self) -> bool:
        """Whether the next start will find a head. On a full disk there may have been no space for it."""
        return self._head.is_open

    @property
    def has_old_files(self) -> bool:
        """Whether a checkpoint could remove journal files."""
        return bool(self._old)

    def lost(self) -> str | None:
        """Which journal file that recovery would need is missing; None if all are there."""
        needed = self._old if self._current is None else [*self._old, self._current]
        missing = (file.path for file in needed if self._disk.size(file.path) < 0)
        return next((f"{path} is gone" for path in missing), None)

    def _sync_old(self, path: str) -> None:
        """Sync a replayed file: its content will be served, and readable bytes are not always durable."""
        handle = self._disk.open(path)
        try:
            synced(self._disk, handle)
        finally:
            self._disk.close(handle)

    def write(self, operations: Sequence[Buffer], size: int, *, sync: bool) -> int:
        """Write one frame and return its number. The frame is valid only if this returns."""
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
            self._synced = number
        self._written_at = self._position
        self._position += total
        self._next = number + 1
        self._current.last = number
        return number

    def acknowledge(self) -> None:
        """Record in the head that the last frame is about to be acknowledged."""
        self._head.advance(synced=self._synced, written=self._next - 1)

    def retract(self) -> None:
        """Remove the last frame, which was not acknowledged. A failure fences the storage."""
        assert self._current is not None
        try:
            self._disk.write(self._handle, [bytes(FRAME_HEADER.size)], self._written_at)
        except OSError as error:
            raise SyncFailed(str(error)) from error
        synced(self._disk, self._handle)
        self._position = self._written_at
        self._next -= 1
        self._synced = self._next - 1
        self._current.last -= 1

    def release(self, number: int) -> None:
        """Frames up to `number` are checkpointed: remove their files, and keep one as a spare."""
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
        """Close the file. If everything is checkpointed, remove the journal's content: the next start reads
        nothing."""
        current, self._current = self._current, None
        if current is not None:
            self._disk.close(self._handle)
        try:
            if everything_checkpointed and self._head.is_open:
                self._head.begin(NO_FILE, self._next, 0)
            if everything_checkpointed and current is not None:
                self._retire(current)
        finally:
            self._head.close()

    def _roll(self) -> None:
        """Open the next file. A failure changes nothing: a full disk may have space later."""
        if self._current is not None:
            synced(self._disk, self._handle)
        salt = self._random_bytes(SALT_BYTES)
        path = f"{self._directory}/{file_name(self._next, salt)}"
        handle = self._open_new(path)
        try:
            self._head.begin(salt, self._next, self._file_bytes)
        except OSError:
            self._disk.close(handle)
            self._disk.remove(path)
            raise
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
            # Before the rename: recovery treats a file that is too short as damaged.
            synced(self._disk, handle)
            self._disk.rename(spare, path)
        except OSError:
            self._disk.close(handle)
            self._disk.remove(spare)  # the disk is nearly full: free the space that was allocated
            raise
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


def head_path(directory: str) -> str:
    """The path of the head. It lies beside the journal's directory, so that loss of one need not be loss of
    both."""
    return f"{directory}.head"


def file_name(first: int, salt: bytes) -> str:
    return f"{first:020d}-{salt.hex()}.wal"
