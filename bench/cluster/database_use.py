"""What a load costs in the database and in the object store."""

import time
from dataclasses import dataclass

import psycopg

_FLUSHED_SECONDS = 1.5
"""PostgreSQL's processes report their transactions once a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    transactions: int
    wal_bytes: int
    objects: int

    def since(self, before: "Use") -> "Use":
        return Use(
            transactions=self.transactions - before.transactions,
            wal_bytes=self.wal_bytes - before.wal_bytes,
            objects=self.objects - before.objects,
        )


def use_of(database: str) -> Use:
    time.sleep(_FLUSHED_SECONDS)
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute(
            """
            SELECT xact_commit + xact_rollback, (pg_current_wal_insert_lsn() - '0/0')::bigint,
                   (SELECT count(*) FROM posthouse.object)
              FROM pg_stat_database WHERE datname = current_database()
            """
        ).fetchone()
    assert row is not None
    return Use(transactions=row[0], wal_bytes=row[1], objects=row[2])
