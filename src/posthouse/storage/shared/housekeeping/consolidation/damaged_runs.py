"""Damaged runs: how long consolidation waits for them, and how it moves past them.

A log whose run cannot be read is not consolidated further, so all later runs of the log keep their slots. The
damage may pass: an object is restored, a faulty disk is replaced. After `wait_ms` consolidation gives the run
up: a segment gets what can be salvaged of it. The damaged bytes are kept in an object of their own, which no
row knows and garbage collection never finds:

    damaged/<topic id>-<partition>/<first offset>-<last offset>

An object that is missing may mean that the broker looks into the wrong place. So its runs are given up only
if an object that is older is there.
"""

import logging

from posthouse.model.clock import Clock
from posthouse.model.errors import DataDamaged
from posthouse.model.ids import PartitionId
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.housekeeping.consolidation.part import LogPart
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.housekeeping.run_bytes import RunBytes
from posthouse.storage.shared.reads.runs import RunRow

log = logging.getLogger(__name__)

_OLDER = "SELECT key FROM object WHERE id < %s AND live > 0 AND size > 0 ORDER BY id DESC LIMIT 8"


class DamagedRuns:
    def __init__(self, objects: HousekeptObjects, run_bytes: RunBytes, clock: Clock, *, wait_ms: int) -> None:
        self._objects = objects
        self._run_bytes = run_bytes
        self._clock = clock
        self._wait_ms = wait_ms
        self._since: dict[tuple[int, int], float] = {}
        """When a run was found damaged first, by log and offset."""

    async def give_up(
        self, connection: DatabaseConnection, part: LogPart, run: RunRow, error: DataDamaged
    ) -> bool:
        """Add what is left of the run to the part; returns false while that must wait."""
        if run.base != part.to:
            return False  # the rows before it are missing, which is no matter of its bytes
        key = (run.log, run.base)
        if key not in self._since:
            self._since[key] = self._clock.monotonic()
            log.error(
                "%s: not consolidated from offset %d on: %s. It is given up unless it can be read in %d s",
                part.log.partition,
                part.to,
                error,
                self._wait_ms // 1000,
            )
        if self._clock.monotonic() - self._since[key] < self._wait_ms / 1000:
            return False
        data = await self._bytes(connection, run)
        if data is None:
            return False
        kept = "nothing is left of their bytes"
        if data:
            name = (
                f"damaged/{part.log.partition.topic.hex()}-{part.log.partition.index}/{run.base}-{run.last}"
            )
            await self._objects.put(name, data)
            kept = f"their bytes are kept in the object {name}"
        part.salvage(run, data)
        del self._since[key]
        log.error(
            "%s: records of the offsets %d to %d are lost: %s; %s. 'posthouse storage verify' shows damage",
            part.log.partition,
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
        except DataDamaged:
            if run.object is not None and not await self._has_older(connection, run.object):
                return None
            return b""
        return data

    async def _has_older(self, connection: DatabaseConnection, object_id: int) -> bool:
        async with meaning("looking for older objects"):
            found = await connection.execute(_OLDER, [object_id])
            keys = [row[0] for row in await found.fetchall()]
        for key in keys:
            try:
                await self._objects.read(key, 0, 1)
            except DataDamaged:
                continue
            return True
        return False


def _name(partition: PartitionId, run: RunRow) -> str:
    return f"damaged/{partition.topic.hex()}-{partition.index}/{run.base}-{run.last}"
