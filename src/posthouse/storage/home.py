"""What of a data directory is not reached through `Disk`: its lock, and the catalog's databases.

SQLite has its own way to files, so these go together: passed in, for a simulation to keep them in memory.
"""

import logging
import os
import sqlite3
from pathlib import Path
from typing import Protocol

from posthouse.storage.lock import DirectoryLock

log = logging.getLogger(__name__)

CATALOG = "catalog.sqlite"


class Home(Protocol):
    directory: Path

    def acquire(self) -> None:
        """Make the directory if need be, and keep other brokers out of it."""

    def release(self) -> None: ...

    def connect(self, name: str) -> sqlite3.Connection:
        """A connection in autocommit mode that any one thread at a time may use."""

    def has(self, name: str) -> bool: ...

    def has_topics(self) -> bool:
        """Whether there are files of any."""

    def write(self, name: str, data: bytes) -> None: ...

    def replace(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None:
        """It is fine if it is not there."""


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class OsHome:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = DirectoryLock(directory)

    def acquire(self) -> None:
        is_new = not self.has(CATALOG)
        self._make_directory(self.directory)
        if is_new:
            # Whoever made it, nobody may have synced its name, and all that is in it would go with that.
            self._sync_name()
        self._lock.acquire()

    def _make_directory(self, path: Path) -> None:
        if not path.is_dir():
            self._make_directory(path.parent)
            path.mkdir(exist_ok=True)
            _sync(path.parent)

    def _sync_name(self) -> None:
        parent = self.directory.absolute().parent
        try:
            _sync(parent)
        except PermissionError as error:
            log.warning("nobody can tell whether the name of %s is durable: %s", self.directory, error)

    def release(self) -> None:
        self._lock.release()

    def connect(self, name: str) -> sqlite3.Connection:
        return sqlite3.connect(self.directory / name, isolation_level=None, check_same_thread=False)

    def has(self, name: str) -> bool:
        return (self.directory / name).exists()

    def has_topics(self) -> bool:
        topics = self.directory / "topics"
        return topics.is_dir() and any(topics.iterdir())

    def write(self, name: str, data: bytes) -> None:
        (self.directory / name).write_bytes(data)

    def replace(self, old: str, new: str) -> None:
        (self.directory / old).replace(self.directory / new)

    def remove(self, name: str) -> None:
        (self.directory / name).unlink(missing_ok=True)
