"""The identity of a cluster: its id, which clients see, and the secret that its brokers share."""

import base64
import os
from dataclasses import dataclass, field

from posthouse.storage.shared.database import DatabaseConnection, meaning

_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    id: str
    secret: bytes = field(repr=False)


async def cluster_identity(connection: DatabaseConnection) -> ClusterIdentity:
    """The first broker that asks makes it. Raises DatabaseAway."""
    new_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
    async with meaning("reading the identity of the cluster"):
        await connection.execute(
            "INSERT INTO posthouse.cluster (id, secret) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            [new_id, os.urandom(_SECRET_BYTES)],
        )
        found = await connection.execute("SELECT id, secret FROM posthouse.cluster")
        row = await found.fetchone()
    assert row is not None
    return ClusterIdentity(id=row[0], secret=bytes(row[1]))
