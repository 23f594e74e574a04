"""A data directory that is removed or moved under a running broker: nothing more is acknowledged."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageFenced, Unavailable
from posthouse.storage.files.commits.flusher import CHECK_SECONDS
from posthouse.storage.files.engine import FileStorage
from tests.storage.batches import append, make_topic, read_all
from tests.storage.stores import file_storage

TOPIC = make_topic(segment_bytes="100000")
[PARTITION] = TOPIC.partition_ids()


@pytest.fixture
async def storage(tmp_path: Path, clock: ManualClock) -> AsyncIterator[FileStorage]:
    storage = file_storage(tmp_path / "data", clock=clock)
    await storage.open()
    await storage.create_topics([TOPIC])
    await storage.commit([append(PARTITION, b"kept")])
    yield storage
    await storage.close()


def _remove_all(data: Path) -> None:
    shutil.rmtree(data)


def _remove(name: str) -> Callable[[Path], None]:
    def remove(data: Path) -> None:
        if (data / name).is_dir():
            shutil.rmtree(data / name)
        else:
            (data / name).unlink()

    return remove


def _move(data: Path) -> None:
    data.rename(data.with_name("moved"))


def _move_and_put_another_there(data: Path) -> None:
    _move(data)
    shutil.copytree(data.with_name("moved"), data)


def _empty_journal(data: Path) -> None:
    for path in (data / "journal").iterdir():
        path.unlink()


@pytest.mark.parametrize(
    "harm",
    [
        _remove_all,
        _remove("journal"),
        _remove("topics"),
        _remove("catalog.sqlite"),
        _remove("catalog.sqlite-wal"),
        _empty_journal,
        _move,
        _move_and_put_another_there,
    ],
)
async def test_nothing_is_acknowledged_soon_after(
    harm: Callable[[Path], None], storage: FileStorage, tmp_path: Path, clock: ManualClock
) -> None:
    harm(tmp_path / "data")
    clock.advance(CHECK_SECONDS)
    with pytest.raises(StorageFenced, match=str(tmp_path / "data")):
        await storage.commit([append(PARTITION, b"in vain")])
    assert not storage.is_writable


async def test_a_directory_that_was_removed_is_not_made_again(storage: FileStorage, tmp_path: Path) -> None:
    other = make_topic("other")
    await storage.create_topics([other])
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(StorageFenced, match="data is missing"):
        await storage.commit([append(other.partition_ids()[0], b"in vain")])
    assert not (tmp_path / "data").exists()


async def test_no_topic_is_made_in_vain(storage: FileStorage, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(Unavailable):
        await storage.create_topics([make_topic("another")])


async def test_it_is_noticed_while_nothing_is_written(
    storage: FileStorage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(tmp_path / "data")
    while storage.is_writable:
        await asyncio.sleep(0.05)
    assert "was changed under the running broker" in caplog.text


async def test_a_lock_file_that_was_removed_does_no_harm(
    storage: FileStorage, tmp_path: Path, clock: ManualClock
) -> None:
    (tmp_path / "data" / "lock").unlink()
    clock.advance(CHECK_SECONDS)
    await storage.commit([append(PARTITION, b"too")])
    assert await read_all(storage, PARTITION) == {0: b"kept", 1: b"too"}
    assert (tmp_path / "data" / "lock").exists()
    with pytest.raises(Unavailable, match="in use by another broker"):
        await file_storage(tmp_path / "data").open()
