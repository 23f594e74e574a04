"""The transaction that puts segments in the place of runs."""

from collections.abc import Sequence

from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.consolidation.part import LogPart

_SWAP = """
SELECT swap_runs(
    %s, %s, %s, %s,
    %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::bytea[],
    %s::integer[], %s::bigint[], %s::integer[])
"""


async def swap(
    connection: DatabaseConnection, lease: HeldLease, key: str | None, parts: Sequence[LogPart]
) -> set[int]:
    """Returns the logs whose runs were replaced: not those that changed since they were read.

    The segments of all parts lie in the object `key`, one after the other; without segments it is None.
    """
    segments = [(part.log.id, segment) for part in parts for segment in part.segments]
    positions, size = [], 0
    for _, segment in segments:
        positions.append(size)
        size += len(segment.data)
    uses = [(part.log.id, object_id, count) for part in parts for object_id, count in part.objects.items()]
    found = await connection.execute(
        _SWAP,
        [
            lease.incarnation,
            lease.epoch,
            key,
            size,
            [part.log.id for part in parts],
            [part.log.segments_to for part in parts],
            [part.to for part in parts],
            [part.log.start for part in parts],
            [part.added_bytes for part in parts],
            [log for log, _ in segments],
            [segment.base_offset for _, segment in segments],
            [segment.next_offset - 1 for _, segment in segments],
            positions,
            [len(segment.data) for _, segment in segments],
            [segment.max_timestamp for _, segment in segments],
            [segment.created_ms for _, segment in segments],
            [segment.index() for _, segment in segments],
            [log for log, _, _ in uses],
            [object_id for _, object_id, _ in uses],
            [count for _, _, count in uses],
        ],
    )
    row = await found.fetchone()
    return set() if row is None else set(row[0])
