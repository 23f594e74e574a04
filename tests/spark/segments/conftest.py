"""A broker on a shared storage, and its objects behind an HTTP server."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from posthouse.client import Client
from posthouse.spark.segments import holds, manifests, reading
from posthouse.storage.shared.objects.directory import DirectoryObjectStore
from posthouse.testing import ThreadBroker, running_broker
from tests.consolidated import collect_garbage, consolidate, remove
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.spark.segments.object_server import ObjectServer, object_server


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[ObjectServer]:
    directory = tmp_path / "objects"
    directory.mkdir()
    with object_server(directory) as server:
        yield server


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


@pytest.fixture(autouse=True)
def fresh_memory() -> None:
    """What a process remembers of stores and holds from one task to the next."""
    holds._renewed.clear()
    manifests._without.clear()
    reading._away.clear()


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    with new_database(postgres, MIGRATED) as url:
        yield url


@pytest.fixture
def cluster(database: str, objects: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(DirectoryObjectStore, "sign", property(lambda store: objects.sign))
    store = f"file://{objects.directory}"
    with running_broker(retention_check_seconds=86_400, database=database, objects=store) as broker:
        yield Cluster(broker, database, objects)


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.broker.kafka) as made:
        yield made
