"""SQLite errors as messages that say what happened to the catalog and what to do about it."""

import sqlite3
from pathlib import Path

from posthouse.model.errors import StorageFull, Unavailable

_SENTENCES = {
    sqlite3.SQLITE_BUSY: "{path} is locked by another program ({error}); stop that program, then try again",
    sqlite3.SQLITE_LOCKED: "{path} is locked by another program ({error}); stop that program, then try again",
    sqlite3.SQLITE_READONLY: (
        "{path} cannot be written ({error}); let the broker's user write to this file and to its directory, "
        "and check that the file system is not mounted read-only"
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "{path} cannot be opened ({error}); check that it and the files beside it whose names begin like it "
        "are files which the broker's user may read and write"
    ),
    sqlite3.SQLITE_PERM: "{path} cannot be opened ({error}); let the broker's user read and write it",
    sqlite3.SQLITE_IOERR: (
        "the disk failed to read or write {path} ({error}); look at the system's log and check the disk, "
        "then try again"
    ),
    sqlite3.SQLITE_NOMEM: "there is not enough memory to open {path} ({error}); free some, then try again",
}


def primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the error means that the file is damaged. A full disk or missing permissions say nothing about
    it."""
    return primary_code(error) not in _SENTENCES and primary_code(error) != sqlite3.SQLITE_FULL


def explained(path: Path, error: sqlite3.Error) -> Unavailable:
    code = primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return StorageFull(f"no space left for {path} ({error}); free some, or move it to a larger disk")
    sentence = _SENTENCES.get(
        code, "SQLite cannot use {path} ({error}); 'posthouse log verify' on the data directory shows more"
    )
    return Unavailable(sentence.format(path=path, error=error))
