"""The space that is kept back: deletions get it on a full disk, and nothing else takes it from them."""

import sqlite3
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageFull
from posthouse.storage.files.catalog.catalog import RESERVE
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.system.data_directory import CATALOG, OsDataDirectory
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space
from tests.storage.batches import make_topic


class FullDirectory(OsDataDirectory):
    """Once it is full, the catalog cannot grow before the reserve is given up."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._catalogs: list[sqlite3.Connection] = []

    def connect(self, name: str) -> sqlite3.Connection:
        connection = super().connect(name)
        if name == CATALOG:
            self._catalogs.append(connection)
        return connection

    def fill(self) -> None:
        self._limit(1)  # it is never less than what the file has already

    def remove(self, name: str) -> None:
        super().remove(name)
        if name == RESERVE:
            self._limit(1_000_000)

    def _limit(self, pages: int) -> None:
        self._catalogs[-1].execute(f"PRAGMA max_page_count={pages}")


async def test_only_a_deletion_spends_it(tmp_path: Path) -> None:
    directory = FullDirectory(tmp_path)
    storage = FileStorage(tmp_path, clock=ManualClock(), data_directory=directory)
    await storage.open()
    many = [make_topic(f"topic-{number}") for number in range(50)]
    await storage.create_topics(many)
    directory.fill()

    await storage.commit([Put(Space.OFFSETS, b"key", b"v" * 60_000)])
    await storage.checkpoint()
    with pytest.raises(StorageFull):
        await storage.create_topics([make_topic("late" * 20_000)])
    assert directory.has(RESERVE)

    await storage.delete_topics([topic.id for topic in many])
    assert not storage.topics
    await storage.close()
