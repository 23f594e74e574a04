"""Consolidation: runs become segments.

A log is due when its runs have 32 MiB or the oldest is ten minutes old. Runs of many small logs go into one
object, sorted by log; those of a large log into objects of its own. Each segment in the object is byte for
byte a segment file.

The swap:

    1  the object is uploaded under a new key
    2  one transaction (swap_runs) adds its row and those of its segments, raises `segments_to`, and takes
       uses from the objects that the runs lie in

A crash before 2 leaves an orphan, one after 2 leaves nothing to do. Readers see the runs before 2 and the
segments after it. If the scope of a log has gone to another broker, 2 is refused as a whole: an orphan, too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from posthouse.model.clock import Clock
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.storage.shared.database import DatabaseConnection, ScopeNeeded, meaning
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.consolidation.damaged_runs import DamagedRuns
from posthouse.storage.shared.housekeeping.consolidation.due import DueLog, due_logs, runs_of
from posthouse.storage.shared.housekeeping.consolidation.filling import Filling
from posthouse.storage.shared.housekeeping.consolidation.part import LogPart
from posthouse.storage.shared.housekeeping.consolidation.swap import swap
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.kept_logs import KeptLogs
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.housekeeping.run_bytes import RunBytes
from posthouse.storage.shared.objects.names import ObjectNames
from posthouse.storage.shared.reads.runs import RunRow

log = logging.getLogger(__name__)

MIB = 1024 * 1024
_RUNS_AT_ONCE = 5000
"""Most runs of a log, and of a mixed object, that are in memory at a time."""
_REST_FACTOR = 10
"""The search for logs that are due reads all runs; it takes at most a tenth of the time, of all brokers
together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationSettings:
    due_bytes: int = 32 * MIB
    due_ms: int = 10 * 60 * 1000
    mixed_bytes: int = 8 * MIB
    """Largest object of several logs."""
    segment_bytes: int = 32 * MIB
    """Largest segment, unless the topic asks for smaller ones: an object is made in memory."""
    fetch_bytes: int = 4 * MIB
    """Bytes of runs that are read at a time."""
    damage_wait_ms: int = 10 * 60 * 1000
    """How long a damaged run holds up its log. All slots are used up after half an hour."""


class Consolidation:
    def __init__(
        self,
        connect: Callable[[], Awaitable[DatabaseConnection]],
        objects: HousekeptObjects,
        names: ObjectNames,
        lease: HeldLease,
        kept: KeptLogs,
        topics: Callable[[], Mapping[TopicId, Topic]],
        clock: Clock,
        metrics: HousekeepingMetrics,
        settings: ConsolidationSettings | None = None,
    ) -> None:
        self._connect = connect
        self._objects = objects
        self._names = names
        self._lease = lease
        self._kept = kept
        self._topics = topics
        self._clock = clock
        self._metrics = metrics
        self._settings = settings or ConsolidationSettings()
        run_bytes = RunBytes(objects)
        self._damaged = DamagedRuns(objects, run_bytes, clock, wait_ms=self._settings.damage_wait_ms)
        self._filling = Filling(run_bytes, self._damaged, metrics, fetch_bytes=self._settings.fetch_bytes)
        self._one_turn = asyncio.Lock()
        self._look_again = 0.0

    async def run_once(self) -> None:
        """Consolidate all logs that are due, of those that this broker keeps."""
        shards, share = self._kept.shards, self._kept.share
        if not shards:
            self._metrics.consolidation_lag_seconds = 0.0
            self._metrics.damaged_logs = 0
            return
        if self._clock.monotonic() < self._look_again:
            return
        now, due_ms = self._clock.now_ms(), self._settings.due_ms
        created = now - due_ms
        async with self._one_turn, await self._connect() as connection:
            begun = self._clock.monotonic()
            with_runs = await self._due(
                connection,
                size=self._settings.due_bytes,
                created_ms=created,
                ahead_ms=now + due_ms,
                shards=shards,
            )
            looked = self._clock.monotonic()
            self._look_again = looked + _REST_FACTOR * (looked - begun) / share
            late_ms = max((created - each.oldest_ms for each in with_runs), default=0)
            self._metrics.consolidation_lag_seconds = max(late_ms, 0) / 1000
            self._metrics.damaged_logs = 0
            self._damaged.keep(self._topics())
            await self._consolidate(connection, with_runs, self._kept.keeps)

    async def consolidate(self, logs: Sequence[int]) -> None:
        """Consolidate these logs, due or not: compaction needs their segments. Logs of another broker are
        left out."""
        async with self._one_turn, await self._connect() as connection:
            with_runs = await self._due(connection, size=0, created_ms=0, logs=logs)
            await self._consolidate(connection, with_runs, lambda log: True)

    async def _due(
        self,
        connection: DatabaseConnection,
        *,
        size: int,
        created_ms: int,
        ahead_ms: int | None = None,
        shards: Sequence[int] = (),
        logs: Sequence[int] | None = None,
    ) -> list[DueLog]:
        """Without `ahead_ms`, those of a clock that is ahead are not looked for."""
        async with meaning("looking for runs to consolidate"):
            return await due_logs(
                connection,
                self._topics(),
                size=size,
                created_ms=created_ms,
                shards=shards,
                ahead_ms=ahead_ms,
                logs=logs,
            )

    async def _consolidate(
        self, connection: DatabaseConnection, logs: Sequence[DueLog], is_kept: Callable[[int], bool]
    ) -> None:
        """As long as they are kept."""
        begun = self._clock.monotonic()
        try:
            for group in self._groups(logs):
                left = [each for each in group if is_kept(each.id)]
                try:
                    if len(left) == 1:
                        await self._consolidate_alone(connection, left[0], is_kept)
                    elif left:
                        with self._kept.step(each.id for each in left):
                            await self._consolidate_together(connection, left)
                except ScopeNeeded as error:
                    log.info("%s: another broker consolidates its logs", error)
        finally:
            self._metrics.consolidation_seconds += self._clock.monotonic() - begun

    def _groups(self, logs: Sequence[DueLog]) -> Iterator[list[DueLog]]:
        """Neighbours whose runs fit into one object. A larger log is a group of its own."""
        group: list[DueLog] = []
        size = runs = 0
        for each in logs:
            if group and (size + each.size > self._settings.mixed_bytes or runs + each.runs > _RUNS_AT_ONCE):
                yield group
                group, size, runs = [], 0, 0
            group.append(each)
            size += each.size
            runs += each.runs
        if group:
            yield group

    async def _consolidate_together(self, connection: DatabaseConnection, logs: Sequence[DueLog]) -> None:
        runs = await self._runs(connection, logs, limit=_RUNS_AT_ONCE)
        parts = [self._part(each) for each in logs]
        # Not those that came since: the object would become larger than planned.
        work = [(part, runs[part.log.id][: part.log.runs]) for part in parts]
        await self._filling.fill(connection, work)
        await self._write(connection, parts)

    async def _consolidate_alone(
        self, connection: DatabaseConnection, due: DueLog, is_kept: Callable[[int], bool]
    ) -> None:
        """One object after the other, for all runs that the log had when it was found due."""
        left = due.runs
        while left > 0 and is_kept(due.id):
            with self._kept.step([due.id]):
                found = (await self._runs(connection, [due], limit=min(left, _RUNS_AT_ONCE)))[due.id]
                runs = found[: _fitting(found, self._settings.segment_bytes)]
                part = self._part(due)
                await self._filling.fill(connection, [(part, runs)])
                swapped = await self._write(connection, [part])
            if not swapped or part.runs < len(runs):
                return
            left -= part.runs
            due = replace(due, segments_to=part.to)

    def _part(self, due: DueLog) -> LogPart:
        return LogPart(due, segment_bytes=self._settings.segment_bytes)

    async def _runs(
        self, connection: DatabaseConnection, logs: Sequence[DueLog], *, limit: int
    ) -> dict[int, list[RunRow]]:
        wanted = [(each.id, each.segments_to) for each in logs]
        async with meaning("reading runs to consolidate"):
            return await runs_of(connection, wanted, limit=limit)

    async def _write(self, connection: DatabaseConnection, parts: Sequence[LogPart]) -> set[int]:
        """Upload the segments and swap; returns the logs that were swapped."""
        parts = [part for part in parts if part.runs]
        if not parts:
            return set()
        images = [segment.data for part in parts for segment in part.segments]
        key = None
        if images:
            key = self._names.new()
            await self._objects.put(key, images[0] if len(images) == 1 else b"".join(images))
        async with meaning("putting segments in the place of runs"):
            swapped = await swap(connection, self._lease, key, parts)
        for part in parts:
            if part.log.id in swapped:
                self._metrics.consolidated_runs += part.runs
                self._metrics.segments_written += len(part.segments)
                self._metrics.consolidated_bytes += sum(len(segment.data) for segment in part.segments)
        return swapped


def _fitting(runs: Sequence[RunRow], size: int) -> int:
    """How many of the runs have together at most `size` bytes; at least one."""
    for number, run in enumerate(runs):
        size -= run.size
        if size < 0:
            return max(number, 1)
    return len(runs)
