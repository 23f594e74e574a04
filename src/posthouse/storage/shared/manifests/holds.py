"""Holds: objects that garbage collection leaves alone while clients read them."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from posthouse.storage.segment_objects import HOLD_SECONDS
from posthouse.storage.shared.database import DatabaseConnection

_MOST_ROWS = 10_000
"""Of all holds together. Without a hold objects stay for the grace period of garbage collection."""


async def hold_objects(
    connection: DatabaseConnection,
    hold: UUID | None,
    objects: Sequence[int],
    *,
    most_rows: int = _MOST_ROWS,
    seconds: float = HOLD_SECONDS,
) -> UUID | None:
    """Add objects to a hold; None makes a new one. Returns it, or None if there are too many."""
    chosen = hold or uuid4()
    found = await connection.execute(
        "SELECT hold_objects(%s, %s, %s::bigint[], %s)", [chosen, seconds, list(objects), most_rows]
    )
    [(is_held,)] = await found.fetchall()
    return chosen if is_held else hold


async def renew_hold(connection: DatabaseConnection, hold: UUID) -> bool:
    found = await connection.execute("SELECT renew_hold(%s, %s)", [hold, HOLD_SECONDS])
    [(is_held,)] = await found.fetchall()
    return bool(is_held)


async def release_hold(connection: DatabaseConnection, hold: UUID) -> None:
    await connection.execute("SELECT release_hold(%s)", [hold])
