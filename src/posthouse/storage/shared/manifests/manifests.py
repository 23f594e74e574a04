"""Manifests of logs: where clients find the records of ranges in the object store."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from posthouse.model.errors import DataDamaged, OffsetOutOfRange, PosthouseError, UnknownPartition
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.segment_objects import (
    ADDRESS_SECONDS,
    MayRead,
    ObjectRange,
    RangeManifest,
    SegmentManifest,
    SegmentObject,
)
from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.shared.logs.shared_logs import SharedLogs
from posthouse.storage.shared.manifests.holds import hold_objects, release_hold, renew_hold
from posthouse.storage.shared.manifests.manifest_rows import (
    LogRange,
    RangeRows,
    find_aborted,
    find_segments,
    has_segments,
    owners_of,
)
from posthouse.storage.shared.objects.store import Sign
from posthouse.storage.shared.readers import Readers
from posthouse.storage.shared.reads.runs import SegmentRow
from posthouse.storage.shared.reads.segment_indexes import SegmentIndexes

_SEGMENTS = 1000
"""Of all ranges of a manifest, but at least one of each."""
_ABORTED = 100_000
"""Transactions of all ranges of a manifest, but at least one of each."""
_ONE_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"


class SegmentManifests:
    """Implements `SegmentObjects`."""

    def __init__(
        self,
        readers: Readers,
        logs: SharedLogs,
        indexes: SegmentIndexes,
        sign: Sign | None,
        *,
        segments: int = _SEGMENTS,
    ) -> None:
        self._readers = readers
        self._logs = logs
        self._indexes = indexes
        self._sign = sign
        self._segments = segments

    @property
    def can_sign(self) -> bool:
        return self._sign is not None

    async def manifest(
        self,
        wanted: Sequence[ObjectRange],
        *,
        committed: bool,
        signed: bool,
        hold: UUID | None,
        may_read: MayRead,
    ) -> SegmentManifest:
        logs = [self._logs.get(each.partition) for each in wanted]
        known = [
            (log, LogRange(log=log.id, first=each.first, end=each.end))
            for log, each in zip(logs, wanted, strict=True)
            if log is not None
        ]
        ranges = [each for _, each in known]
        found: Sequence[RangeRows | None] = []
        if ranges:
            async with self._readers.connection("making a manifest") as connection:
                if not await has_segments(connection, ranges):
                    return SegmentManifest(
                        hold=hold, ranges=[RangeManifest(next=each.end) for each in wanted]
                    )
                found, hold = await self._find(connection, ranges, committed, signed, hold, may_read)
        addresses = await self._addresses(found, signed=signed)
        made = iter(
            [
                await self._range(log, each, rows, addresses, committed=committed)
                for (log, each), rows in zip(known, found, strict=True)
            ]
        )
        return SegmentManifest(
            hold=hold,
            ranges=[
                next(made) if log is not None else _refused(each.end, UnknownPartition("it is not there"))
                for log, each in zip(logs, wanted, strict=True)
            ],
        )

    async def renew(self, hold: UUID) -> bool:
        async with self._readers.connection("renewing a hold") as connection:
            return await renew_hold(connection, hold)

    async def release(self, hold: UUID) -> None:
        async with self._readers.connection("releasing a hold") as connection:
            await release_hold(connection, hold)

    async def _find(
        self,
        connection: DatabaseConnection,
        wanted: Sequence[LogRange],
        committed: bool,
        signed: bool,
        hold: UUID | None,
        may_read: MayRead,
    ) -> tuple[Sequence[RangeRows | None], UUID | None]:
        """The objects are held before another transaction could see that they are not used any more."""
        async with connection.transaction():
            await connection.execute(_ONE_SNAPSHOT)
            found = await find_segments(connection, wanted, rows=max(self._segments // len(wanted), 1))
            if signed:
                await _leave_out(connection, found, may_read)
            objects = _objects(found)
            if objects:
                hold = await hold_objects(connection, hold, objects)
                if committed:
                    await find_aborted(connection, wanted, found)
                    for rows in found:
                        if rows is not None:
                            rows.limit_aborted(max(_ABORTED // len(wanted), 1))
        return found, hold

    async def _addresses(self, found: Sequence[RangeRows | None], *, signed: bool) -> Mapping[str, str]:
        """By key."""
        keys = sorted({each.key for rows in found if rows is not None for each in rows.segments})
        if not signed:
            return {key: key for key in keys}
        assert self._sign is not None
        return dict(zip(keys, await self._sign(keys, ADDRESS_SECONDS), strict=True))

    async def _range(
        self,
        log: SharedLog,
        wanted: LogRange,
        rows: RangeRows | None,
        addresses: Mapping[str, str],
        *,
        committed: bool,
    ) -> RangeManifest:
        if rows is None:
            return _refused(wanted.end, UnknownPartition(f"the topic of {log.name} is deleted"))
        if wanted.first < rows.start:
            return _refused(wanted.end, OffsetOutOfRange(f"{log.name} begins at offset {rows.start}"))
        end = min(wanted.end, rows.stable) if committed else wanted.end
        return RangeManifest(
            next=wanted.end if rows.next is None else min(rows.next, wanted.end),
            segments=[
                await self._segment(log, each, wanted.first, end, addresses[each.key])
                for each in rows.segments
                if max(each.base, wanted.first) < end
            ],
            aborted=rows.aborted,
        )

    async def _segment(
        self, log: SharedLog, segment: SegmentRow, first: int, end: int, address: str
    ) -> SegmentObject:
        """The part of a segment that has the records from `first` to before `end`."""
        start, stop = HEADER_BYTES, segment.size
        if segment.base < first or segment.last >= end:
            try:
                index = await self._indexes.of(log, segment)
            except DataDamaged:
                index = None  # it only saves reading
            if index is not None:
                start = max(index.position_of(first), HEADER_BYTES)
                stop = index.position_behind(end - 1)
        return SegmentObject(
            address=address,
            start=segment.pos + start,
            size=stop - start,
            base=max(segment.base, first),
            last=min(segment.last, end - 1),
            generation=segment.generation,
        )


async def _leave_out(
    connection: DatabaseConnection,
    found: Sequence[RangeRows | None],
    may_read: MayRead,
) -> None:
    """Remove the segments in objects that also have records which the reader may not see."""
    hidden = {
        object_id
        for object_id, owners in (await owners_of(connection, _objects(found))).items()
        if not all(may_read(topic) for topic in owners.topics) or (owners.has_others and not may_read(None))
    }
    for rows in found:
        if rows is not None:
            rows.segments = [each for each in rows.segments if each.object not in hidden]


def _objects(found: Sequence[RangeRows | None]) -> list[int]:
    return sorted({each.object for rows in found if rows is not None for each in rows.segments})


def _refused(end: int, error: PosthouseError) -> RangeManifest:
    return RangeManifest(next=end, refusal=error)
