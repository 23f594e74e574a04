"""The journal's head: the last acknowledged frame, kept apart from the frames themselves.

File `journal.head`, two slots of 64 bytes, at byte 0 and at byte 512, big-endian:

    offset  size  field
         0     4  magic         "PHJH"
         4     4  crc           CRC32C of byte 8 to the end
         8     8  sequence      the slot with the higher one counts
        16     8  salt          of the journal file that is being written; zeros: there is none
        24     8  first         number of its first frame
        32     8  file bytes    allocated for it
        40     8  synced        the last frame that is known to be synced
        48     8  written       the last frame that was written, and may have been acknowledged
        56     8  zeros

A journal whose end was damaged looks like one that ended earlier. The head tells the two apart: frames up to
`written` have to be there. Without it every one of them could be the torn frame that was never acknowledged.

It is synced when a journal file is begun, and not for every frame: that would cost a sync per commit. So it
is exact when the process was killed, and may be older than the journal after a power cut. `synced` is never
ahead of the journal on disk, because it is written after the frame's sync. Frames between `synced` and
`written` were acknowledged without a sync (durability `os`), and a power cut may take them.

The slots are written in turn, so that a torn write leaves the previous slot intact. Beginning a file
writes both; until both are written, the other slot names the file before, which is still there.
"""

import logging
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from crc32c import crc32c

from posthouse.storage.files.system.disk import Disk, SyncFailed, synced

log = logging.getLogger(__name__)

SLOT = Struct(">4sIQ8sQQQQ8x")
SLOT_DISTANCE = 512
MAGIC = b"PHJH"
_UNDER_CRC = Struct(">Q8sQQQQ8x")
NO_FILE = bytes(8)
_UNDER_CRC_AT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    salt: bytes
    first: int
    file_bytes: int
    synced: int
    written: int

    @property
    def names_file(self) -> bool:
        return self.salt != NO_FILE


class HeadWriter:
    """Writes the head. Used by the flusher thread alone."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._handle: int | None = None
        self._sequence = 0
        self._file = (NO_FILE, 0, 0)
        self._latest = (0, 0)
        self._has_failed = False

    def begin(self, salt: bytes, first: int, file_bytes: int) -> None:
        """Record that a journal file is about to be written. Durable on return; raises OSError or
        SyncFailed."""
        is_new = self._disk.size(self._path) < 0
        handle = self._open()
        before = (self._file, self._sequence, self._latest)
        self._file, self._sequence = (salt, first, file_bytes), 0
        try:
            for _ in range(2):
                self._write(handle, first - 1, first - 1)
        except OSError:
            self._file, self._sequence, self._latest = before
            # Higher than the sequence of a slot that this call may have written.
            self._sequence = max(self._sequence, 2)
            self.advance(synced=self._latest[0], written=self._latest[1])  # the previous file stays in use
            raise
        synced(self._disk, handle)
        if is_new:
            try:
                self._disk.sync_directory(self._path.rpartition("/")[0])
            except OSError as error:
                raise SyncFailed(str(error)) from error

    def advance(self, *, synced: int, written: int) -> None:
        """Record the last synced and the last written frame. An outdated head is still true, so a failure to
        write it does not stop commits."""
        if self._handle is None:
            return
        try:
            self._write(self._handle, synced, written)
        except OSError as error:
            if not self._has_failed:
                log.warning(
                    "%s cannot be written (%s): damage at the end of the journal may go unnoticed; "
                    "check the disk",
                    self._path,
                    error,
                )
            self._has_failed = True

    @property
    def is_open(self) -> bool:
        return self._handle is not None

    def close(self) -> None:
        if self._handle is not None:
            self._disk.close(self._handle)
            self._handle = None

    def _open(self) -> int:
        if self._handle is None:
            self._handle = self._disk.open(self._path, create=True)
        return self._handle

    def _write(self, handle: int, synced: int, written: int) -> None:
        self._sequence += 1
        self._latest = (synced, written)
        slot = encode_slot(self._sequence, *self._file, synced, written)
        self._disk.write(handle, [slot], self._sequence % 2 * SLOT_DISTANCE)


def encode_slot(sequence: int, salt: bytes, first: int, file_bytes: int, synced: int, written: int) -> bytes:
    under_crc = _UNDER_CRC.pack(sequence, salt, first, file_bytes, synced, written)
    return MAGIC + crc32c(under_crc).to_bytes(4, "big") + under_crc


def read_head(disk: Disk, path: str) -> Head | None:
    """The head; None if the file is missing or no slot is valid."""
    if disk.size(path) < 0:
        return None
    handle = disk.open(path)
    try:
        data = disk.read(handle, SLOT_DISTANCE + SLOT.size, 0)
    finally:
        disk.close(handle)
    slots = [slot for at in (0, SLOT_DISTANCE) if (slot := _decode_slot(data[at : at + SLOT.size]))]
    return max(slots, key=lambda slot: slot[0])[1] if slots else None


def _decode_slot(data: bytes) -> tuple[int, Head] | None:
    try:
        magic, crc, sequence, salt, first, file_bytes, synced, written = SLOT.unpack(data)
    except StructError:
        return None
    if magic != MAGIC or crc32c(data[_UNDER_CRC_AT:]) != crc:
        return None
    head = Head(salt=salt, first=first, file_bytes=file_bytes, synced=synced, written=written)
    return sequence, head
