"""The catalog's databases and the lock, on the simulated disk.

SQLite works in memory here. What a transaction has committed is stored as one, and durably: that is what
`synchronous=FULL` means. A crash comes before or after a commit, never in the middle of one.
"""

import sqlite3
from pathlib import Path
from typing import Any

from posthouse.storage.files.system.data_directory import CATALOG
from tests.simulation.disk import Disk


class Database(sqlite3.Connection):
    """A connection whose commits reach the simulated disk."""

    data_directory: "DataDirectory"
    name: str

    def load(self, data_directory: "DataDirectory", name: str) -> None:
        self.data_directory = data_directory
        self.name = name
        stored = data_directory.databases.get(name)
        if stored is not None:
            self.deserialize(stored)

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql != "COMMIT":
            return super().execute(sql, *args)
        fails = self.data_directory.before_commit(self.name)
        cursor = super().execute(sql)
        if fails:
            self._take_back()
            raise _error("disk I/O error", sqlite3.SQLITE_IOERR)
        self.store()
        return cursor

    def _take_back(self) -> None:
        """What this process knows is as before; the disk may have it all the same, until the next commit."""
        phantom = self.serialize()
        self.deserialize(self.data_directory.databases[self.name])
        self.data_directory.commit_perhaps(self.name, phantom)

    def executescript(self, script: str) -> sqlite3.Cursor:
        cursor = super().executescript(script)
        self.store()
        return cursor

    def backup(self, target: sqlite3.Connection, **options: Any) -> None:
        super().backup(target, **options)
        assert isinstance(target, Database)
        target.store()

    def store(self) -> None:
        self.data_directory.commit(self.name, self.serialize())


def _error(text: str, code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


class DataDirectory:
    """See `DataDirectory` of the file storage. One for each life of the broker, all on one disk."""

    directory = Path("/data")

    def __init__(self, disk: Disk, databases: dict[str, bytes], files: dict[str, int]) -> None:
        self._disk = disk
        self.databases = databases
        self._files = files
        """Sizes of files whose content nobody asks for."""

    def acquire(self) -> None:
        self._disk.make_directory(str(self.directory))
        if not self.has(CATALOG):
            self._disk.sync_directory(str(self.directory.parent))

    def release(self) -> None:
        """The dead hold no locks, and there is one broker at a time."""

    def watch(self) -> None:
        """Nothing is removed behind the broker's back here."""

    def lost(self) -> str | None:
        return None

    def connect(self, name: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, factory=Database
        )
        # Every commit stores the database whole, so it should be small.
        connection.execute("PRAGMA page_size=512")
        connection.load(self, name)
        return connection

    def before_commit(self, name: str) -> bool:
        """Whether it is to fail because of the device; raises where there is no room."""
        self._disk.on_change("commit", name)
        if self._disk.room is not None and self._disk.room < 4096:
            raise _error("database or disk is full", sqlite3.SQLITE_FULL)
        return self._disk.fails_commit(name)

    def commit_perhaps(self, name: str, content: bytes) -> None:
        if self._disk.tosses_coin():
            self.databases[name] = content

    def commit(self, name: str, content: bytes) -> None:
        self._disk.note_commit(name, content)
        self.databases[name] = content

    def has(self, name: str) -> bool:
        return name in self.databases or name in self._files

    def has_topics(self) -> bool:
        return bool(self._disk.names(f"{self.directory}/topics"))

    def write(self, name: str, data: bytes) -> None:
        taken = self._disk.take_room(len(data))
        self._files[name] = len(data)
        if taken < len(data):
            raise OSError(28, "no space left on device", name)

    def replace(self, old: str, new: str) -> None:
        self.databases[new] = self.databases.pop(old)

    def remove(self, name: str) -> None:
        self.databases.pop(name, None)
        size = self._files.pop(name, 0)
        if self._disk.room is not None:
            self._disk.room += size
