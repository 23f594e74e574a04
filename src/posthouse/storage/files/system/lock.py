"""The lock that allows one broker per data directory.

The broker holds two locks (flock). The lock on the directory itself survives the removal of files and moves
with a renamed directory. The lock on the file `lock` names the process. Some network file systems have no
locks on directories; there the file is the only lock, and `renew` detects its removal.
"""

import errno
import fcntl
import logging
import os
from pathlib import Path

from posthouse.model.errors import Unavailable

log = logging.getLogger(__name__)

_NO_DIRECTORY_LOCKS = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class DirectoryLock:
    """Held until `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / "lock"
        self._directory_handle = -1
        self._handle = -1

    def acquire(self) -> None:
        try:
            self._lock_directory()
            self._lock_file()
        except BaseException:
            self.release()
            raise

    def renew(self) -> None:
        """Create the lock file again if it was removed. Raises Unavailable if another broker has it now."""
        if self._has_file():
            return
        os.close(self._handle)
        self._handle = -1
        self._lock_file()
        log.warning("%s was removed while this broker uses the directory; it is created again", self._path)

    def release(self) -> None:
        for handle in (self._handle, self._directory_handle):
            if handle >= 0:
                os.close(handle)
        self._handle = self._directory_handle = -1

    def _lock_directory(self) -> None:
        handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._directory_handle = handle
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._in_use(self._holder()) from None
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_LOCKS:
                raise
            log.info(
                "%s: the file system has no locks on directories, only the lock file is used (%s)",
                self._directory,
                error,
            )

    def _lock_file(self) -> None:
        while not self._has_file():  # the file may be removed between opening and locking it
            if self._handle >= 0:
                os.close(self._handle)
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._in_use(os.read(self._handle, 32)) from None
        holder = f"{os.getpid()}\n"
        try:
            # Not truncated first: on a full disk another file could take its block.
            os.pwrite(self._handle, holder.encode(), 0)
            os.ftruncate(self._handle, len(holder))
        except OSError as error:
            raise Unavailable(f"{self._directory} cannot be locked: {error}") from error

    def _has_file(self) -> bool:
        """Whether the open file is still the one under the lock's path."""
        if self._handle < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._handle), self._path.stat())
        except FileNotFoundError:
            return False

    def _holder(self) -> bytes:
        try:
            return self._path.read_bytes()[:32]
        except OSError:
            return b""

    def _in_use(self, holder: bytes) -> Unavailable:
        process = holder.decode(errors="replace").strip() or "unknown"
        return Unavailable(
            f"{self._directory} is in use by another broker (process {process}); "
            "stop that one, or choose another directory with --data"
        )
