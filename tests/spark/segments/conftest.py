"""A broker on a shared storage, and its objects behind an HTTP server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.client import Client
from posthouse.spark.segments import holds, manifests, reading
from posthouse.storage.shared.objects.directory import DirectoryObjectStore
from posthouse.testing import running_broker
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.spark.segments.clusters import Cluster
from tests.spark.segments.object_server import ObjectServer, object_server


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[ObjectServer]:
    directory = tmp_path / "objects"
    directory.mkdir()
    with object_server(directory) as server:
        yield server


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
    with running_broker(database=database, objects=store) as broker:
        yield Cluster(broker, database, objects)


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.broker.kafka) as made:
        yield made
