"""Import of the data directory of a single broker into an empty shared storage.

    1  the directory is opened as by a broker: its lock is held, its journal replayed
    2  `begin_import` takes an exclusive lease, for as long as the import takes, also while it is interrupted
    3  topics and logs with their final bounds
    4  segments: each object is uploaded, then one transaction adds it and moves `log.segments_to`
    5  producers and state
    6  everything is read back from both storages and compared
    7  `finish_import` releases the lease

A killed import goes on where it was: 4 is continued from `segments_to`, all other steps are repeated. An
object without a row is an orphan, which garbage collection deletes.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from posthouse.model.clock import Clock
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.shared.administration.transfer.comparison import (
    compare_logs,
    compare_state,
    take_state,
)
from posthouse.storage.shared.administration.transfer.cutting import CutSegment, cut
from posthouse.storage.shared.administration.transfer.import_rows import ImportRows
from posthouse.storage.shared.administration.transfer.local_source import LocalLog, LocalSource, opened_source
from posthouse.storage.shared.administration.transfer.transfer_lease import (
    ImportLease,
    begin_import,
    finish_import,
)
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.membership.identity import cluster_identity
from posthouse.storage.shared.migrations import applied_schema, check_schema
from posthouse.storage.shared.objects.names import ObjectNames
from posthouse.storage.shared.stores import SharedStores

_OBJECT_BYTES = 8 * 1024 * 1024
"""Largest object of several segments."""
_STATEMENT_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReport:
    topics: int
    logs: int
    bytes: int
    """Of all batches, compared after the copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgress:
    begin: Callable[[int], None]
    """Told the bytes that will be copied and compared."""
    advance: Callable[[int], None]


async def import_directory(
    directory: Path, stores: SharedStores, clock: Clock, progress: TransferProgress
) -> TransferReport:
    """Raises TransferRefused, DataDamaged or Unequal; after any error it can be repeated."""
    async with opened_source(directory, clock) as source:
        await stores.objects.check()
        logs = await source.logs()
        connection = await stores.database.connect("import", statement_seconds=_STATEMENT_SECONDS)
        async with connection:
            async with meaning("beginning the import"):
                check_schema(await applied_schema(connection))
                await cluster_identity(connection)
                lease = await begin_import(connection, source.storage.cluster_id)
            work = _Import(source, logs, stores, connection, lease, progress)
            compared = await work.run()
            await finish_import(connection, lease)
    return TransferReport(topics=len(source.storage.topics), logs=len(logs), bytes=compared)


class _Import:
    def __init__(
        self,
        source: LocalSource,
        logs: Sequence[LocalLog],
        stores: SharedStores,
        connection: DatabaseConnection,
        lease: ImportLease,
        progress: TransferProgress,
    ) -> None:
        self._source = source
        self._logs = logs
        self._stores = stores
        self._rows = ImportRows(connection, lease)
        self._lease = lease
        # Not those of the storage that is opened to compare: no key may be used twice.
        self._names = ObjectNames(uuid4())
        self._progress = progress

    async def run(self) -> int:
        """Returns how many bytes were compared."""
        storage = self._source.storage
        total = sum(segment.row.size for log in self._logs for segment in log.segments)
        self._progress.begin(2 * total)
        await self._rows.put_logs(list(storage.topics.values()), self._logs)
        await self._copy_segments()
        await self._rows.put_producers(self._logs, storage)
        state = take_state(storage)
        await self._rows.put_state(state)
        copy = self._stores.storage(self._lease, defaults=TopicConfig())
        await copy.open()
        try:
            compare_state(state, take_state(copy))
            return await compare_logs(storage, copy, self._progress.advance)
        finally:
            await copy.close()

    async def _copy_segments(self) -> None:
        waiting: list[CutSegment] = []
        size = 0
        for log in self._logs:
            cuts = cut(log, self._rows.imported_to(log))
            while (made := await asyncio.to_thread(next, cuts, None)) is not None:
                if waiting and size + len(made.image.data) > _OBJECT_BYTES:
                    await self._upload(waiting)
                    waiting, size = [], 0
                waiting.append(made)
                size += len(made.image.data)
        if waiting:
            await self._upload(waiting)

    async def _upload(self, segments: Sequence[CutSegment]) -> None:
        images = [each.image.data for each in segments]
        key = self._names.new()
        await self._stores.objects.put(key, images[0] if len(images) == 1 else b"".join(images))
        await self._rows.put_segments(key, segments)
        self._progress.advance(sum(map(len, images)))
