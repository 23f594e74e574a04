"""Starts that hang or fail: of a node, and of the holder in it."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from posthouse.model.clock import SystemClock
from posthouse.model.errors import InvalidConfig
from posthouse.model.scopes import COORDINATOR
from posthouse.model.topic_config import TopicConfig
from posthouse.node import Node
from posthouse.settings import Address
from posthouse.shared_storage import SharedStorages
from posthouse.storage.shared.database import Database, DatabaseAway, DatabaseConnection
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.logs import loading
from posthouse.storage.shared.membership.lease import Lease
from posthouse.storage.shared.time_limit import cut_if_cancelled
from tests.cluster.nodes import coordinates, node, node_settings, nodes, until

Sql = psycopg.Connection[tuple[object, ...]]


class HangingStorages(SharedStorages):
    """Those of the coordinator hang."""

    made = 0

    def make(self, lease: Lease) -> SharedStorage:
        self.made += 1
        storage = super().make(lease)
        if lease.holds(COORDINATOR):
            storage.open = hang  # type: ignore[method-assign]
        return storage


class RefusingStorages(SharedStorages):
    """They refuse to be the coordinator's."""

    refused = 0

    def make(self, lease: Lease) -> SharedStorage:
        storage = super().make(lease)
        storage.coordinate = self._refuse  # type: ignore[method-assign]
        return storage

    async def _refuse(self) -> None:
        self.refused += 1
        raise InvalidConfig("a file is missing")


async def hang() -> None:
    await asyncio.get_running_loop().create_future()


async def hanging(url: str) -> tuple[Node, "asyncio.Task[None]", HangingStorages]:
    storages = HangingStorages(node_settings(url, "a"), SystemClock())
    one = node(url, "a", storages)
    starting = asyncio.create_task(one.start())
    await until(lambda: storages.made)
    return one, starting, storages


async def test_a_coordinator_whose_start_hangs_can_be_stopped(url: str, sql: Sql) -> None:
    one, starting, _ = await hanging(url)
    starting.cancel()
    await asyncio.wait_for(asyncio.wait([starting]), 5)
    assert starting.cancelled()
    assert one.parts.running.done()
    assert sql.execute("SELECT holder FROM lease").fetchall() == []
    assert sql.execute("SELECT count(*) FROM scope WHERE holder IS NOT NULL").fetchone() == (0,)


async def test_a_start_ends_with_the_lease(url: str) -> None:
    """The broker begins anew, under a new one."""
    one, starting, storages = await hanging(url)
    lease = one.parts.life.lease
    assert lease is not None
    lease.fenced("the database has lost commits")
    await until(lambda: storages.made == 2, 5)
    again = one.parts.life.lease
    assert again is not None and again.epoch > lease.epoch
    starting.cancel()
    await asyncio.wait_for(asyncio.wait([starting]), 5)


@contextmanager
def stopped_backend(connection: DatabaseConnection) -> Iterator[None]:
    """It does not answer, but its system keeps the connection."""
    process = connection.info.backend_pid
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


async def test_loading_from_a_database_that_hangs_can_be_cancelled(database: Database) -> None:
    connection = await database.connect("test")
    with stopped_backend(connection):
        work = loading.load(connection, TopicConfig(), coordinates=True, has_all=True)
        loaded = asyncio.create_task(cut_if_cancelled(connection, work))
        await asyncio.sleep(0.2)
        loaded.cancel()
        await asyncio.wait_for(asyncio.wait([loaded]), 3)
        assert loaded.cancelled()
    await connection.close()


async def test_loading_from_a_database_that_hangs_ends(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_STALL_SECONDS", 0.3)
    connection = await database.connect("test")
    with stopped_backend(connection), pytest.raises(DatabaseAway, match="loading the logs"):
        await asyncio.wait_for(loading.load(connection, TopicConfig(), coordinates=True, has_all=True), 3)
    await connection.close()


async def test_a_standby_with_a_bad_certificate_does_not_start(url: str) -> None:
    async with nodes(url, "a"):
        bad = node(
            url,
            "b",
            kafka_tls=Address("127.0.0.1", 0),
            tls_certificate=Path("/nonexistent.pem"),
            tls_key=Path("/nonexistent.key"),
        )
        with pytest.raises(InvalidConfig, match="nonexistent"):
            await bad.start()


async def test_a_broker_that_cannot_serve_as_it_is_configured_ends_at_its_start(url: str, sql: Sql) -> None:
    one = node(url, "a", RefusingStorages(node_settings(url, "a"), SystemClock()))
    with pytest.raises(InvalidConfig, match="a file is missing"):
        await one.start()
    assert sql.execute("SELECT holder FROM lease").fetchall() == []
    assert sql.execute("SELECT count(*) FROM scope WHERE holder IS NOT NULL").fetchone() == (0,)


async def test_a_member_that_cannot_coordinate_leaves_the_lease_to_others(url: str) -> None:
    async with nodes(url, "a") as (first,):
        storages = RefusingStorages(node_settings(url, "b"), SystemClock())
        refusing, other = node(url, "b", storages), node(url, "c")
        await refusing.start()
        await first.stop()
        await until(lambda: storages.refused)
        await other.start()
        await until(coordinates(other), 4)
        assert not refusing.parts.running.done()
        await refusing.stop()
        await other.stop()
