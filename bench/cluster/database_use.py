"""What a load costs in the database and in the object store."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

_FLUSHED_SECONDS = 1.5
"""PostgreSQL's processes report their transactions once a second."""
_SAMPLE_SECONDS = 0.02
_SAMPLE = """
SELECT count(*) FILTER (WHERE state = 'active'), count(*) FILTER (WHERE wait_event_type = 'Lock')
  FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


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


class LockWaits:
    """How often statements were found waiting for a lock, of those that were found running."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting = 0

    @property
    def percent(self) -> float:
        return self.waiting / max(self.running, 1) * 100


@contextlib.contextmanager
def lock_waits(database: str) -> Iterator[LockWaits]:
    """Sampled while the block runs."""
    found = LockWaits()
    is_over = threading.Event()
    with psycopg.connect(database, autocommit=True) as connection:

        def sample() -> None:
            while not is_over.wait(_SAMPLE_SECONDS):
                row = connection.execute(_SAMPLE).fetchone()
                assert row is not None
                found.running += row[0]
                found.waiting += row[1]

        sampling = threading.Thread(target=sample, daemon=True)
        sampling.start()
        try:
            yield found
        finally:
            is_over.set()
            sampling.join()
