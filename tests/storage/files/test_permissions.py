"""Only the owner of a data directory may read what is in it."""

import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from posthouse.model.errors import Unavailable
from posthouse.storage.files.system import data_directory
from posthouse.storage.files.system.permissions import tighten
from tests.storage.batches import append, make_topic
from tests.storage.compacted_store import filled
from tests.storage.stores import file_storage


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    """What others may do, by path; only what they may do at all."""
    paths = [directory, *directory.rglob("*")]
    return {str(path): mode for path in paths if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077}


async def test_everything_that_is_written_is_for_its_owner_only(umask: int, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    storage = await filled(directory)
    await storage.checkpoint()
    await storage.compact()
    assert modes(directory) == {}
    names = {path.name for path in directory.rglob("*")}
    assert {"lock", "reserve", "catalog.sqlite", "catalog.sqlite-wal", "catalog.backup.sqlite"} <= names
    assert any(name.endswith(".index") for name in names) and any(name.endswith("-1.log") for name in names)
    await storage.close()
    assert modes(directory) == {}
    assert (directory / "journal" / "spare").exists()


async def test_what_an_older_version_left_open_is_closed_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "data"
    storage = file_storage(directory)
    await storage.open()
    topic = make_topic()
    await storage.create_topics([topic])
    [partition] = topic.partition_ids()
    await storage.commit([append(partition, b"a")])
    await storage.close()
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    (directory / "archive").mkdir(mode=0o755)
    (directory / "archive").chmod(0o755)
    with caplog.at_level(logging.WARNING):
        await storage_reopened(directory)
    assert set(modes(directory)) == {str(directory / "archive")}  # the user's own place
    assert len([line for line in caplog.messages if "open to other users" in line]) == 1
    caplog.clear()
    await storage_reopened(directory)
    assert not caplog.messages


async def storage_reopened(directory: Path) -> None:
    storage = file_storage(directory)
    await storage.open()
    await storage.close()


def test_what_cannot_be_closed_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)

    def refuse(path: object, mode: int, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "chmod", refuse)
    tighten(tmp_path)
    [line] = caplog.messages
    assert f"chmod -R go= {tmp_path}" in line


async def test_a_directory_that_may_not_be_listed_does_not_keep_the_broker_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`topics` may be a file system of its own, with a `lost+found` that belongs to root."""
    await storage_reopened(tmp_path)
    (tmp_path / "topics" / "lost+found").mkdir(0o700)
    (tmp_path / "topics" / "open").touch()
    (tmp_path / "topics" / "open").chmod(0o644)
    scandir = os.scandir

    def refused(path: Any) -> Any:
        if str(path).endswith("lost+found"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    await storage_reopened(tmp_path)
    assert modes(tmp_path) == {}
    [line] = [line for line in caplog.messages if "may have access" in line]
    assert "lost+found" in line


def test_a_file_that_is_removed_meanwhile_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "journal").mkdir(mode=0o700)
    (tmp_path / "journal" / "gone").touch(0o600)
    tmp_path.chmod(0o700)
    scandir = os.scandir

    @contextmanager
    def removing(path: Any) -> Iterator[Any]:
        with scandir(path) as entries:
            found = list(entries)
        (tmp_path / "journal" / "gone").unlink()
        yield iter(found)

    monkeypatch.setattr(os, "scandir", removing)
    tighten(tmp_path / "journal")
    assert not caplog.messages


async def test_a_start_that_fails_while_it_locks_leaves_the_directory_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(directory: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), directory)

    storage = file_storage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(data_directory, "tighten", fail)
        with pytest.raises(Unavailable, match="cannot be opened"):
            await storage.open()
    await storage_reopened(tmp_path)
