"""The transaction that puts merged segments in the place of the small ones."""

from collections.abc import Sequence

from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.merging.merge import MergedSegment

_SWAP = """
SELECT merge_segments(
    %s, %s, %s, %s,
    %s::integer[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
    %s::bigint[], %s::bigint[], %s::integer[], %s::bigint[], %s::bytea[],
    %s::integer[], %s::bigint[], %s::integer[])
"""


async def swap(
    connection: DatabaseConnection, lease: HeldLease, key: str, made: Sequence[MergedSegment]
) -> list[MergedSegment]:
    """Returns those that count: not those of which an old segment has gone or is below the start of its log.

    All lie in the object `key`, one after the other.
    """
    images = [each.image for each in made]
    positions, size = [], 0
    for image in images:
        positions.append(size)
        size += len(image.data)
    old = [(number, source) for number, each in enumerate(made, 1) for source in each.merge.sources]
    found = await connection.execute(
        _SWAP,
        [
            lease.incarnation,
            lease.epoch,
            key,
            size,
            [each.merge.log for each in made],
            [image.base_offset for image in images],
            [image.next_offset - 1 for image in images],
            positions,
            [len(image.data) for image in images],
            [image.max_timestamp for image in images],
            [image.created_ms for image in images],
            [image.generation for image in images],
            [min(source.horizon for source in each.merge.sources) for each in made],
            [image.index() for image in images],
            [number for number, _ in old],
            [source.base for _, source in old],
            [source.generation for _, source in old],
        ],
    )
    [(numbers,)] = await found.fetchall()
    return [made[number - 1] for number in numbers]
