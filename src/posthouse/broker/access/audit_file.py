"""The file of the audit log, append-only.

A torn line, after a full disk or a kill, is ended with a line break before the next line, and written again
if it is still in memory. So all lines but the torn one are readable. If the file was moved away, a new file
is created: that is how the log is rotated.

The name of a file is made durable before its first line counts as written: a power cut could otherwise remove
the file.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class AuditFile:
    """Owned by one thread."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = path
        _make_directory(path.parent)
        self._file = _opened(path)
        self._is_torn = _has_torn_end(path)

    def append(self, lines: Sequence[bytes]) -> tuple[int, OSError | None]:
        """Append lines; returns how many of the first lines are on disk, and the error if not all."""
        try:
            self._follow()
            data = b"\n" + b"".join(lines) if self._is_torn else b"".join(lines)
        except OSError as error:
            return 0, error
        at = 0
        failure = None
        try:
            while at < len(data):
                at += os.write(self._file, data[at:] if at else data)
        except OSError as error:
            failure = error
        if at:
            self._is_torn = data[at - 1] != b"\n"[0]
        try:
            os.fdatasync(self._file)
        except OSError as error:
            if stat.S_ISREG(os.fstat(self._file).st_mode):
                return 0, error  # after a failed sync the content is unknown: write all lines again
        return (len(lines), None) if failure is None else (_whole(lines, data[:at]), failure)

    def close(self) -> None:
        os.close(self._file)

    def _follow(self) -> None:
        try:
            is_there = os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            is_there = False
        if not is_there:
            other = _opened(self._path)
            os.close(self._file)
            self._file = other
            self._is_torn = _has_torn_end(self._path)


def _make_directory(path: Path) -> None:
    if not path.is_dir():
        _make_directory(path.parent)
        path.mkdir(exist_ok=True)
        _sync_directory(path.parent)


def _opened(path: Path) -> int:
    """Open or create the file, and make its name durable, also if it exists already."""
    file = os.open(path, _FLAGS, 0o600)
    try:
        if stat.S_ISREG(os.fstat(file).st_mode):
            _sync_directory(path.resolve().parent)
    except BaseException:
        os.close(file)
        raise
    return file


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _whole(lines: Sequence[bytes], written: bytes) -> int:
    size = len(written) - (1 if written.startswith(b"\n") else 0)
    for number, line in enumerate(lines):
        size -= len(line)
        if size < 0:
            return number
    return len(lines)


def _has_torn_end(path: Path) -> bool:
    """Whether the last line has no line break."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
