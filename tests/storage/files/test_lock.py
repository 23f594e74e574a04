"""One broker at a time; and a lock that cannot be taken says why."""

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from posthouse.model.errors import Unavailable
from posthouse.storage.files.system.lock import DirectoryLock


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


def test_deleting_the_lock_file_lets_nobody_in(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.acquire()
    (tmp_path / "lock").unlink()
    with pytest.raises(Unavailable, match="in use by another broker"):
        second.acquire()
    first.release()


def test_a_directory_that_was_renamed_is_still_in_use(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    first = DirectoryLock(tmp_path / "data")
    first.acquire()
    (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(Unavailable, match=f"process {os.getpid()}"):
        DirectoryLock(tmp_path / "moved").acquire()
    first.release()


def test_a_lock_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    (tmp_path / "lock").unlink()
    lock.renew()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_without_locks_on_directories_a_lost_file_is_not_taken_back_from_another_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def files_only(handle: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # as NFS does
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", files_only)
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.acquire()
    with pytest.raises(Unavailable, match="in use by another broker"):
        second.acquire()
    (tmp_path / "lock").unlink()
    second.acquire()
    with pytest.raises(Unavailable, match="in use by another broker"):
        first.renew()
    first.release()
    second.release()
