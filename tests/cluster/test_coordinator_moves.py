"""Operators choose the coordinator: a broker gives up that role in good order, and does not take it again."""

import asyncio
import logging
import struct

import httpx
import psycopg
import pytest
from aiokafka import AIOKafkaProducer

from posthouse.model.clock import SystemClock
from posthouse.model.errors import InvalidConfig
from posthouse.model.scopes import Scope
from posthouse.node import Node
from posthouse.node_life import Role
from posthouse.shared_storage import SharedStorages
from posthouse.storage.shared.database import DatabaseAway
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.membership.lease import Lease
from tests.cluster.nodes import coordinates, node, node_settings, nodes, until

Sql = psycopg.Connection[tuple[object, ...]]
SECONDS = 30


async def call(each: Node, path: str, body: object = None) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as http:
        return await http.post(f"http://{each.listeners['admin']}/v1/cluster/{path}", json=body or {})


async def all_ready(each: Node, count: int) -> None:
    await until(lambda: [broker.is_ready for broker in each.view.brokers] == [True] * count)


async def api_versions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(struct.pack(">ihhih", 10, 18, 0, 7, -1))
    [size] = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), SECONDS))
    assert (await reader.readexactly(size))[:6] == struct.pack(">ih", 7, 0)


async def test_a_coordinator_that_is_drained_becomes_a_member(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with nodes(url, "a", "b") as (first, second):
        kafka = first.listeners["kafka"]
        producer = AIOKafkaProducer(bootstrap_servers=str(kafka))
        await producer.start()
        await producer.send_and_wait("t", b"1", partition=0)
        reader, writer = await asyncio.open_connection(kafka.host, kafka.port)
        await api_versions(reader, writer)
        await all_ready(first, 2)
        assert (await call(second, "brokers/a/drain")).status_code == 204
        await until(coordinates(second), SECONDS)
        await until(lambda: first.role is Role.MEMBER and first.parts.life.app is not None)
        await producer.send_and_wait("t", b"2", partition=0)
        await producer.stop()
        await api_versions(reader, writer)  # the connection is still there
        writer.close()
        assert "gives up the coordinator of epoch 1" in caplog.text
        assert "closes all connections" not in caplog.text
        await until(lambda: first.view.holder_incarnation == second.view.holder_incarnation)
        # It stays where it is when the broker may hold scopes again.
        assert (await call(first, "brokers/a/undrain")).status_code == 204
        await until(lambda: not first.view.brokers[0].is_draining)
        assert second.role is Role.COORDINATOR
        lease = first.parts.life.lease
        assert lease is not None and not lease.is_lost


async def test_the_coordinator_is_moved(url: str) -> None:
    async with nodes(url, "a", "b", "c") as (first, second, third):
        await all_ready(first, 3)
        assert (await call(second, "scopes/coordinator/move", {"broker": "c"})).status_code == 204
        await until(coordinates(third), SECONDS)
        await until(lambda: first.role is Role.MEMBER)
        assert second.role is Role.MEMBER
        await until(lambda: third.view.holder is not None and third.view.holder.name == "c")
        async with httpx.AsyncClient(timeout=30) as http:
            found = (await http.get(f"http://{first.listeners['admin']}/v1/cluster")).json()
        assert found["scopes"][0] == {"name": "coordinator", "holder": 3, "wanted": 3}


async def test_a_broker_that_starts_leaves_the_coordinator_to_the_one_that_is_wanted(
    url: str, sql: Sql
) -> None:
    async with nodes(url, "a", "b") as (first, second):
        await all_ready(first, 2)
        sql.execute("SELECT want_scope('coordinator', 'b')")
        await until(coordinates(second), SECONDS)
        await until(lambda: first.role is Role.MEMBER)
        await second.stop()
        await until(coordinates(first))
        again = node(url, "b")
        await again.start()
        assert again.role is Role.MEMBER
        await until(coordinates(again), SECONDS)
        await again.stop()


async def test_the_only_broker_stays_the_coordinator(url: str, sql: Sql) -> None:
    async with nodes(url, "a") as (only,):
        assert (await call(only, "brokers/a/drain")).status_code == 409
        sql.execute("SELECT drain_broker('a', true)")
        await until(lambda: only.view.brokers[0].is_draining)
        await asyncio.sleep(1)
        assert only.role is Role.COORDINATOR
        assert only.epoch == 1


class NeverCoordinates(SharedStorages):
    def make(self, lease: Lease) -> SharedStorage:
        storage = super().make(lease)
        storage.coordinate = self._refuse  # type: ignore[method-assign]
        return storage

    async def _refuse(self) -> None:
        raise InvalidConfig("this broker cannot coordinate")


async def test_a_coordinator_that_is_not_wanted_is_better_than_none(
    url: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.node_campaign._UNWANTED_SECONDS", 1.0)
    async with nodes(url, "a") as (first,):
        cannot = node(url, "b", NeverCoordinates(node_settings(url, "b"), SystemClock()))
        await cannot.start()
        try:
            await all_ready(first, 2)
            sql.execute("SELECT drain_broker('a', true)")
            await until(lambda: first.role is Role.MEMBER, SECONDS)
            await until(coordinates(first), SECONDS)
            assert first.epoch > 1
        finally:
            await cannot.stop()


async def test_a_broker_that_tries_to_become_the_coordinator_in_vain_stops(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(scopes: object) -> frozenset[Scope]:
        raise DatabaseAway("the database is away")

    second = node(url, "b")
    async with nodes(url, "a") as (first,):
        await second.start()
        await all_ready(first, 2)
        scopes = second.parts.life.scopes
        assert scopes is not None
        scopes.take = fail  # type: ignore[method-assign]
    await until(lambda: "broker b cannot become the coordinator" in caplog.text, SECONDS)
    await second.stop()
