"""A local data directory that is to be imported: opened as by a broker, so that its lock is held."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from posthouse.model.clock import Clock
from posthouse.model.errors import DataDamaged, NotFound
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.storage.files.catalog.rows import SegmentRow, load_contents
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.segments.logs import topic_directory
from posthouse.storage.files.segments.segment import segment_name
from posthouse.storage.files.system.data_directory import CATALOG


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSegment:
    path: str
    row: SegmentRow
    next_offset: int
    """Behind the segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalLog:
    topic: Topic
    partition: PartitionId
    start: int
    end: int
    segments: Sequence[LocalSegment]
    """Those that hold offsets from `start` on."""

    @property
    def name(self) -> str:
        return f"{self.topic.name}-{self.partition.index}"

    @property
    def first_offset(self) -> int:
        """Where the segments begin: at the start or before it."""
        return self.segments[0].row.base_offset if self.segments else self.end


class LocalSource:
    def __init__(self, directory: Path, storage: FileStorage) -> None:
        self._directory = directory
        self.storage = storage

    async def logs(self) -> list[LocalLog]:
        """All logs, with their segments as the catalog has them."""
        await self.storage.checkpoint()
        rows = await asyncio.to_thread(self._rows)
        by_partition = {
            partition: list(found) for partition, found in groupby(rows, key=lambda row: row.partition)
        }
        return [
            self._log(topic, partition, by_partition.get(partition, []))
            for topic in self.storage.topics.values()
            for partition in topic.partition_ids()
        ]

    def _rows(self) -> list[SegmentRow]:
        """By partition and offset."""
        place = f"{(self._directory / CATALOG).absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(place, uri=True)) as connection:
            return load_contents(connection, with_state=False).segments

    def _log(self, topic: Topic, partition: PartitionId, rows: Sequence[SegmentRow]) -> LocalLog:
        bounds = self.storage.bounds(partition)
        directory = topic_directory(str(self._directory), topic.id)
        bases = [*(row.base_offset for row in rows), bounds.end]
        segments = [
            LocalSegment(
                path=f"{directory}/{segment_name(partition.index, row.base_offset, row.generation)}",
                row=row,
                next_offset=end,
            )
            for row, end in zip(rows, bases[1:], strict=True)
            if end > bounds.start and row.base_offset < end
        ]
        log = LocalLog(
            topic=topic, partition=partition, start=bounds.start, end=bounds.end, segments=segments
        )
        if log.first_offset > log.start:
            raise DataDamaged(f"{log.name}: no segment holds the offsets from {log.start} on")
        return log


@asynccontextmanager
async def opened_source(directory: Path, clock: Clock) -> AsyncIterator[LocalSource]:
    """Raises Unavailable if a broker uses the directory or a newer version wrote it, DataDamaged if it has
    lost commits."""
    if not (directory / CATALOG).exists():
        raise NotFound(
            f"{directory} is no data directory of a broker; name the one that was given to "
            "'posthouse serve --data'"
        )
    storage = FileStorage(directory, clock=clock)
    await storage.open()
    try:
        if storage.has_lost_commits:
            raise DataDamaged(
                f"{directory} has lost commits; start a broker on it once, which then goes on with new "
                "producer ids, and stop it"
            )
        yield LocalSource(directory, storage)
    finally:
        await storage.close()
