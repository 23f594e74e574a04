"""Blocks as files of one directory, each with a checksum. All calls block.

A file begins with a mark and a checksum of the block, its key and its place, so that a file that a power cut
or a disk has damaged, or that has another's name, is recognised. Nothing is synced.
"""

import contextlib
import os
import re
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from posthouse.storage.files.system.permissions import DIRECTORY_MODE, FILE_MODE

_MARK = b"PHB1"
_HEADER = Struct("<4sI")
HEADER_BYTES = _HEADER.size

_NAME = re.compile(r"[0-9a-f]{32}-[0-9a-f]+-[0-9a-f]+\.block")
_PART = ".part"


def key_hash(key: str) -> str:
    """The first 32 characters of the names of all blocks of an object."""
    return blake2b(key.encode(), digest_size=16).hexdigest()


def block_name(key: str, start: int, size: int) -> str:
    return f"{key_hash(key)}-{start:x}-{size:x}.block"


class DamagedBlock(Exception):
    pass


class BlockFiles:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self) -> dict[str, int]:
        """Create the directory; names and sizes of the files in it, oldest first. Removes unfinished ones."""
        self.directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        found = []
        with os.scandir(self.directory) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed since the directory was read
                    if entry.name.endswith(f".block{_PART}"):
                        Path(entry).unlink()
                    elif _NAME.fullmatch(entry.name):
                        status = entry.stat()
                        found.append((status.st_mtime_ns, entry.name, status.st_size))
        return {name: size for _, name, size in sorted(found)}

    def read(self, key: str, start: int, size: int) -> bytes | None:
        """None if there is no such file; raises DamagedBlock if there is one with other bytes."""
        try:
            handle = os.open(self.directory / block_name(key, start, size), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with os.fdopen(handle, "rb", buffering=0) as file:
            header = file.read(HEADER_BYTES)
            # One byte more than there should be shows a file that is too long.
            data = file.read(size + 1)
        if header != _header(key, start, data) or len(data) != size:
            raise DamagedBlock
        return data

    def write(self, key: str, start: int, data: bytes | memoryview) -> None:
        path = self.directory / block_name(key, start, len(data))
        part = path.with_name(path.name + _PART)
        try:
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(handle, "wb", buffering=0) as file:
                for each in (_header(key, start, data), data):
                    left = memoryview(each)
                    while left:
                        left = left[file.write(left) :]
            part.replace(path)
        except OSError:
            with contextlib.suppress(OSError):  # the first error tells more; `prepare` removes the file
                part.unlink(missing_ok=True)
            raise

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            (self.directory / name).unlink(missing_ok=True)


def _header(key: str, start: int, data: bytes | memoryview) -> bytes:
    return _HEADER.pack(_MARK, crc32c(data, crc32c(f"{key} {start}".encode())))
