"""Damaged runs: how long consolidation waits for them, and how it moves past them.

A log whose run cannot be read is not consolidated further, so all later runs of the log keep their slots. The
damage may pass: an object is restored, a faulty disk is replaced. After `wait_ms` consolidation gives the run
up: a segment gets what can be salvaged of it. The damaged bytes are kept in an object of their own, which no
row knows and garbage collection never finds:

    damaged/<topic id>-<partition>/<first offset>-<last offset>

An object with bytes of a run that was given up keeps that use, so it is never deleted: an operator may look
at it.

An object that is missing may mean that the broker looks into the wrong place. So its runs are given up only
if an object that is older is there. Of an object that is too short the bytes that are there are used.
"""

import asyncio
import logging
from collections.abc import Container

from posthouse.model.clock import Clock
from posthouse.model.errors import DataDamaged
from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.housekeeping.consolidation.part import LogPart
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.housekeeping.run_bytes import RunBytes
from posthouse.storage.shared.objects.store import ObjectDamaged, ObjectMissing
from posthouse.storage.shared.reads.runs import RunRow

log = logging.getLogger(__name__)

_OLDER = "SELECT key FROM object WHERE id < %s AND live > 0 AND size > 0 ORDER BY id DESC LIMIT 8"
_NEEDED = "SELECT FROM log WHERE id = %s AND segments_to <= %s AND NOT deleted"


class DamagedRuns:
    def __init__(self, objects: HousekeptObjects, run_bytes: RunBytes, clock: Clock, *, wait_ms: int) -> None:
        self._objects = objects
        self._run_bytes = run_bytes
        self._clock = clock
        self._wait_ms = wait_ms
        self._since: dict[tuple[PartitionId, int], float] = {}
        """When a run was found damaged first, by its first offset."""

    async def is_needed(self, connection: DatabaseConnection, run: RunRow) -> bool:
        """Whether the run is still part of its log. The bytes of a deleted topic may be gone, which is no
        damage."""
        async with meaning("asking whether a damaged run is needed"):
            found = await connection.execute(_NEEDED, [run.log, run.base])
            return await found.fetchone() is not None

    def consolidated(self, partition: PartitionId, to: int) -> None:
        """All runs below `to` were read: if one is found damaged again, it is waited for again."""
        if self._since:
            self._since = {
                key: since for key, since in self._since.items() if key[0] != partition or key[1] >= to
            }

    def keep(self, topics: Container[TopicId]) -> None:
        """Forget the damaged runs of all other topics: those are deleted."""
        if self._since:
            self._since = {key: since for key, since in self._since.items() if key[0].topic in topics}

    async def give_up(
        self, connection: DatabaseConnection, part: LogPart, run: RunRow, error: DataDamaged
    ) -> bool:
        """Add the run, or what is left of it, to the part; returns false while that must wait."""
        if run.base != part.to:
            return False  # the rows before it are missing, which is no matter of its bytes
        partition = part.log.partition
        key = (partition, run.base)
        if key not in self._since:
            self._since[key] = self._clock.monotonic()
            log.error(
                "%s: not consolidated from offset %d on: %s. It is given up unless it can be read in %d s",
                partition,
                part.to,
                error,
                self._wait_ms // 1000,
            )
        if self._clock.monotonic() - self._since[key] < self._wait_ms / 1000:
            return False
        data = await self._bytes(connection, run)
        if data is None:
            return False
        if await _is_added(part, run, data):
            return True
        kept = "nothing is left of their bytes"
        if data:
            name = _name(partition, run)
            await self._objects.put(name, data)
            kept = f"their bytes are kept in the object {name}"
        part.salvage(run, data)
        log.error(
            "%s: records of the offsets %d to %d are lost: %s; %s. 'posthouse storage verify' shows damage",
            partition,
            run.base,
            run.last,
            error,
            kept,
        )
        return True

    async def _bytes(self, connection: DatabaseConnection, run: RunRow) -> bytes | memoryview | None:
        """The damaged bytes, empty if they are missing; None if they may be somewhere else."""
        if run.refs is not None:
            return run.refs
        try:
            async with meaning("reading a damaged run"):
                [data] = await self._run_bytes.read(connection, [run])
        except ObjectDamaged:
            assert run.key is not None
            return await self._prefix(run.key, run.pos, run.size)
        except DataDamaged:
            if run.object is not None and not await self._has_older(connection, run.object):
                return None
            return b""
        return data

    async def _prefix(self, key: str, start: int, size: int) -> bytes:
        """What is there of `size` bytes of an object that is too short."""
        known, end = 0, size
        while known < end:
            middle = (known + end + 1) // 2
            try:
                await self._objects.read(key, start + middle - 1, 1)
                known = middle
            except ObjectDamaged:
                end = middle - 1
        return bytes(await self._objects.read(key, start, known)) if known else b""

    async def _has_older(self, connection: DatabaseConnection, object_id: int) -> bool:
        async with meaning("looking for older objects"):
            found = await connection.execute(_OLDER, [object_id])
            keys = [row[0] for row in await found.fetchall()]
        for key in keys:
            try:
                await self._objects.read(key, 0, 1)
            except ObjectMissing:
                continue
            except ObjectDamaged:
                pass  # it is there, but empty
            return True
        return False


async def _is_added(part: LogPart, run: RunRow, data: bytes | memoryview) -> bool:
    """Add the run as it is, if it can be read again."""
    try:
        await asyncio.to_thread(part.add, [run], [data])
    except DataDamaged:
        return False
    return True


def _name(partition: PartitionId, run: RunRow) -> str:
    return f"damaged/{partition.topic.hex()}-{partition.index}/{run.base}-{run.last}"
