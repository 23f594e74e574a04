"""Reads the bytes of runs, some megabytes at a time, and adds them to the parts that they belong to."""

import asyncio
from collections.abc import Iterator, Sequence

from posthouse.model.errors import DataDamaged
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.housekeeping.consolidation.damaged_runs import DamagedRuns
from posthouse.storage.shared.housekeeping.consolidation.part import LogPart
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.run_bytes import RunBytes
from posthouse.storage.shared.reads.runs import RunRow

Work = Sequence[tuple[LogPart, Sequence[RunRow]]]


class Filling:
    def __init__(
        self,
        run_bytes: RunBytes,
        damaged: DamagedRuns,
        metrics: HousekeepingMetrics,
        *,
        fetch_bytes: int,
    ) -> None:
        self._run_bytes = run_bytes
        self._damaged = damaged
        self._metrics = metrics
        self._fetch_bytes = fetch_bytes

    async def fill(self, connection: DatabaseConnection, work: Work) -> None:
        """Add the runs to their parts. A part ends before its first damaged run that is not given up yet."""
        ended: set[int] = set()
        for chunk in _chunks(work, self._fetch_bytes):
            left = [(part, runs) for part, runs in chunk if part.log.id not in ended]
            try:
                await self._add(connection, left)
            except DataDamaged:
                for part, runs in left:
                    if not await self._add_one_by_one(connection, part, runs):
                        ended.add(part.log.id)
        for part, _ in work:
            self._damaged.consolidated(part.log.partition, part.to)

    async def _add(self, connection: DatabaseConnection, chunk: Work) -> None:
        live = [run for part, runs in chunk for run in runs if not part.is_dead(run)]
        async with meaning("reading runs to consolidate"):
            found = await self._run_bytes.read(connection, live)
        data = {(run.log, run.base): each for run, each in zip(live, found, strict=True)}
        for part, runs in chunk:
            # Stamping and checking some megabytes must not hold up the event loop.
            await asyncio.to_thread(part.add, runs, [data.get((run.log, run.base), b"") for run in runs])

    async def _add_one_by_one(
        self, connection: DatabaseConnection, part: LogPart, runs: Sequence[RunRow]
    ) -> bool:
        """Add the runs that are not yet added; returns false if a damaged one ends the part."""
        for run in runs:
            if run.last < part.to:
                continue
            try:
                await self._add(connection, [(part, [run])])
            except DataDamaged as error:
                if not await self._damaged.is_needed(connection, run):
                    return False
                if not await self._damaged.give_up(connection, part, run, error):
                    self._metrics.damaged_logs += 1
                    return False
        return True


def _chunks(work: Work, size: int) -> Iterator[list[tuple[LogPart, list[RunRow]]]]:
    """The work in pieces of about `size` bytes."""
    chunk: list[tuple[LogPart, list[RunRow]]] = []
    room = size
    for part, runs in work:
        for run in runs:
            if chunk and run.size > room:
                yield chunk
                chunk, room = [], size
            if not chunk or chunk[-1][0] is not part:
                chunk.append((part, []))
            chunk[-1][1].append(run)
            room -= run.size
    if chunk:
        yield chunk
