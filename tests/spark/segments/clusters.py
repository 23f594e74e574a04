"""A broker on a shared storage, and its housekeeping, at once."""

from dataclasses import dataclass
from typing import Any

import psycopg

from posthouse.testing import ThreadBroker
from tests.consolidated import collect_garbage, consolidate, remove
from tests.spark.segments.object_server import ObjectServer


@dataclass(frozen=True, slots=True)
class Cluster:
    broker: ThreadBroker
    database: str
    objects: ObjectServer

    @property
    def store(self) -> str:
        return f"file://{self.objects.directory}"

    def consolidate(self, *, segment_bytes: int = 32 * 1024 * 1024) -> None:
        consolidate(self.database, self.store, segment_bytes=segment_bytes)

    def execute(self, statement: str, *values: object) -> None:
        with psycopg.connect(self.database, options="-c search_path=posthouse") as connection:
            connection.execute(statement.encode(), values)

    def one(self, statement: str) -> tuple[Any, ...]:
        with psycopg.connect(self.database, options="-c search_path=posthouse") as connection:
            row = connection.execute(statement.encode()).fetchone()
            assert row is not None
            return row

    def remove(self) -> None:
        remove(self.database, self.store)

    def collect_garbage(self) -> None:
        collect_garbage(self.database, self.store)
