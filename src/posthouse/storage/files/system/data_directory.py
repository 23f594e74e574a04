"""Access to a data directory besides `Disk`: its lock, and the catalog's databases.

SQLite opens files by itself, so both are passed in together: a simulation keeps them in memory.
"""

import logging
import os
import sqlite3
from pathlib import Path
from typing import Protocol

from posthouse.model.errors import Unavailable
from posthouse.storage.files.system.lock import DirectoryLock
from posthouse.storage.files.system.permissions import DIRECTORY_MODE, FILE_MODE, tighten

log = logging.getLogger(__name__)

CATALOG = "catalog.sqlite"
_NEEDED = ("journal", "journal.head", "topics", CATALOG, f"{CATALOG}-wal")
"""Paths that must stay in place besides the directory: writes to a removed or replaced one would be lost."""


class DataDirectory(Protocol):
    directory: Path

    def acquire(self) -> None:
        """Create the directory if it is missing, and lock it against other brokers."""

    def release(self) -> None: ...

    def watch(self) -> None:
        """Remember the identity of the files and directories. The catalog is open."""

    def lost(self) -> str | None:
        """Which path was removed or replaced since `watch`, as a sentence; None if none was."""

    def connect(self, name: str) -> sqlite3.Connection:
        """A connection in autocommit mode that any one thread at a time may use."""

    def has(self, name: str) -> bool: ...

    def has_topics(self) -> bool:
        """Whether there are files of any topic."""

    def write(self, name: str, data: bytes) -> None: ...

    def replace(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None:
        """Delete a file; a missing file is no error."""


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


class OsDataDirectory:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = DirectoryLock(directory)
        self._watched: dict[Path, tuple[int, int]] = {}

    def acquire(self) -> None:
        is_new = not self.has(CATALOG)
        self._make_directory(self.directory)
        if is_new:
            # The directory may have been created without a sync of its name. A power cut could then lose
            # everything in it.
            self._sync_name()
        self._lock.acquire()
        tighten(self.directory)

    def _make_directory(self, path: Path) -> None:
        if not path.is_dir():
            self._make_directory(path.parent)
            try:
                path.mkdir(DIRECTORY_MODE if path == self.directory else 0o777, exist_ok=True)
            except OSError as error:
                raise self._cannot_make(path, error) from error
            _sync(path.parent)

    def _cannot_make(self, path: Path, error: OSError) -> Unavailable:
        if path.exists():
            reason = f"{path} is a file"
        elif isinstance(error, FileNotFoundError):
            # Its parent is there: /proc and its kind refuse new directories like that.
            reason = f"{path.parent} takes no new directories"
        else:
            reason = f"{path}: {error.strerror}"
        return Unavailable(
            f"the data directory {self.directory} cannot be created ({reason}); choose another place with "
            "--data"
        )

    def _sync_name(self) -> None:
        parent = self.directory.absolute().parent
        try:
            _sync(parent)
        except PermissionError as error:
            log.warning(
                "%s: its parent cannot be synced, so a power cut may lose its name: %s", self.directory, error
            )

    def release(self) -> None:
        self._watched = {}
        self._lock.release()

    def watch(self) -> None:
        paths = [self.directory, *(self.directory / name for name in _NEEDED)]
        self._watched = {path: _identity(path) for path in paths if path.exists()}

    def lost(self) -> str | None:
        for path, known in self._watched.items():
            try:
                is_same = _identity(path) == known
            except OSError as error:
                return f"{path} is missing ({error.strerror})"
            if not is_same:
                return f"{path} was replaced since the broker started"
        if self._watched:
            try:
                self._lock.renew()
            except (OSError, Unavailable) as error:
                return f"the lock is lost ({error})"
        return None

    def connect(self, name: str) -> sqlite3.Connection:
        # Created here: SQLite copies the mode of the database to its other files, and would create it with
        # the umask.
        os.close(os.open(self.directory / name, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
        return sqlite3.connect(self.directory / name, isolation_level=None, check_same_thread=False)

    def has(self, name: str) -> bool:
        return (self.directory / name).exists()

    def has_topics(self) -> bool:
        topics = self.directory / "topics"
        return topics.is_dir() and any(topics.iterdir())

    def write(self, name: str, data: bytes) -> None:
        handle = os.open(
            self.directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE
        )
        with os.fdopen(handle, "wb") as file:
            file.write(data)

    def replace(self, old: str, new: str) -> None:
        (self.directory / old).replace(self.directory / new)

    def remove(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)
