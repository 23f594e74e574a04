"""One broker at a time; and a lock that cannot be taken says why."""

import errno
import os
from pathlib import Path

import pytest

from posthouse.model.errors import Unavailable
from posthouse.storage.lock import DirectoryLock


def test_who_comes_second_is_told_who_was_first(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.acquire()
    with pytest.raises(Unavailable, match=f"process {os.getpid()}"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_shorter_number_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("1234567890123\n")
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_full_disk_is_said_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lock = DirectoryLock(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(Unavailable, match=r"cannot be locked: .*No space left"):
            lock.acquire()
    lock.acquire()
    lock.release()
