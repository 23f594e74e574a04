"""One broker per data directory."""

import fcntl
import os
from pathlib import Path

from posthouse.model.errors import Unavailable


class DirectoryLock:
    """Held until `release` or the end of the process, however it ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._handle = -1

    def acquire(self) -> None:
        path = self._directory / "lock"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise Unavailable(
                f"{self._directory} is in use by another broker (process {holder}); "
                "stop that one, or choose another directory with --data"
            ) from None
        holder = f"{os.getpid()}\n"
        try:
            # Not emptied first: on a full disk its block would be gone to somebody else.
            os.pwrite(handle, holder.encode(), 0)
            os.ftruncate(handle, len(holder))
        except OSError as error:
            os.close(handle)
            raise Unavailable(f"{self._directory} cannot be locked: {error}") from error
        self._handle = handle

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
