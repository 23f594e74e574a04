"""Scopes of housekeeping on brokers that run: both consolidate, scopes move meanwhile, one broker dies."""

import asyncio
import time
from collections import Counter
from contextlib import ExitStack
from urllib.parse import quote
from uuid import UUID

import httpx
import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from posthouse.model.scopes import HOUSEKEEPING, Scope, scope_of_log
from posthouse.node import Node
from tests.cluster.busy_housekeeping import SETTINGS, busy
from tests.cluster.nodes import nodes, until
from tests.cluster.scope_moves import hurry
from tests.cluster.test_processes import NodeProcess

Sql = psycopg.Connection[tuple[object, ...]]
SECONDS = 60
PARTITIONS = 32


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scopes move without pauses, and logs are consolidated at once."""
    hurry(monkeypatch)
    monkeypatch.setattr(SETTINGS, busy)


def holders(sql: Sql) -> dict[Scope, str]:
    """The names of the brokers that hold scopes of housekeeping."""
    found = sql.execute(
        "SELECT s.name, b.name FROM scope s JOIN broker b ON b.incarnation = s.holder "
        "WHERE s.name LIKE 'housekeeping/%'"
    )
    return {Scope(str(scope)): str(broker) for scope, broker in found.fetchall()}


def is_spread(sql: Sql) -> bool:
    return sorted(Counter(holders(sql).values()).values()) == [8, 8]


def unconsolidated(sql: Sql) -> list[tuple[object, ...]]:
    return sql.execute("SELECT id FROM log WHERE segments_to < next").fetchall()


def kept_by(sql: Sql, since: int = 0) -> dict[int, set[str]]:
    """The brokers that have written segments of each log, from this object on."""
    incarnations = {
        UUID(str(each)).hex: str(name)
        for each, name in sql.execute("SELECT incarnation, name FROM broker").fetchall()
    }
    found: dict[int, set[str]] = {}
    rows = sql.execute(
        "SELECT log, key FROM segment JOIN object ON object.id = segment.object WHERE object.id > %s", [since]
    )
    for log, key in rows.fetchall():
        assert isinstance(log, int)
        [name] = [
            name for incarnation, name in incarnations.items() if incarnation in str(key).replace("-", "")
        ]
        found.setdefault(log, set()).add(name)
    return found


async def create(server: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=server)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("t", PARTITIONS, 1)])
    finally:
        await admin.close()


async def fill(producer: AIOKafkaProducer, value: bytes) -> None:
    """One record into each partition."""
    sent = [await producer.send("t", value, partition=number) for number in range(PARTITIONS)]
    await asyncio.gather(*sent)


async def move(scope: Scope, through: Node, to: str) -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        address = f"http://{through.listeners['admin']}/v1/cluster/scopes/{quote(scope.name, safe='')}/move"
        answer = await http.post(address, json={"broker": to})
        assert answer.status_code == 204, answer.text


async def test_both_brokers_consolidate_and_each_only_its_logs(url: str, sql: Sql) -> None:
    async with nodes(url, "a", "b") as (first, second):
        await until(lambda: is_spread(sql), SECONDS)
        server = str(second.listeners["kafka"])
        await create(server)
        async with AIOKafkaProducer(bootstrap_servers=server) as producer:
            await fill(producer, b"0")
            await until(lambda: not unconsolidated(sql), SECONDS)
        held = holders(sql)
        assert kept_by(sql) == {log: {held[scope_of_log(log)]} for log in kept_by(sql)}
        assert len(kept_by(sql)) == PARTITIONS
        for each in (first, second):
            app = each.parts.life.app
            assert app is not None and app.broker.storage_metrics.remote is not None
            assert app.broker.storage_metrics.remote().upkeep.segments_written > 0
            text = (await asyncio.to_thread(httpx.get, f"http://{each.listeners['admin']}/metrics")).text
            assert 'posthouse_scopes_held{kind="housekeeping"} 8' in text.splitlines()


async def test_scopes_move_while_logs_are_written_and_consolidated(url: str, sql: Sql) -> None:
    async with nodes(url, "a", "b") as (first, second):
        await until(lambda: is_spread(sql), SECONDS)
        servers = [str(each.listeners["kafka"]) for each in (first, second)]
        await create(servers[0])
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for number, to in enumerate("ab"):
                for scope in HOUSEKEEPING:
                    await move(scope, first, to)
                while set(holders(sql).values()) != {to} or len(holders(sql)) < len(HOUSEKEEPING):
                    await fill(producer, b"%d" % number)
            [(last,)] = sql.execute("SELECT max(id) FROM object").fetchall()
            assert isinstance(last, int)
            await fill(producer, b"last")
        await until(lambda: not unconsolidated(sql), SECONDS)
        assert {name for names in kept_by(sql, last).values() for name in names} == {"b"}
        [(lost,)] = sql.execute("SELECT count(*) FROM object WHERE live < 0").fetchall()
        assert lost == 0
        async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
            places = [TopicPartition("t", number) for number in range(PARTITIONS)]
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            ends = await consumer.end_offsets(places)
            seen: Counter[TopicPartition] = Counter()
            async with asyncio.timeout(SECONDS):
                while seen != ends:
                    for place, records in (await consumer.getmany(timeout_ms=1000)).items():
                        assert [each.offset for each in records] == list(
                            range(seen[place], seen[place] + len(records))
                        )
                        seen[place] += len(records)


async def test_the_logs_of_a_killed_broker_are_consolidated_by_the_other(url: str, sql: Sql) -> None:
    with ExitStack() as stack:
        brokers = {name: NodeProcess(url, name, "busy") for name in "ab"}
        for each in brokers.values():
            stack.callback(each.end)
        await until(lambda: is_spread(sql), SECONDS)
        await create(brokers["a"].kafka)
        async with AIOKafkaProducer(bootstrap_servers=brokers["a"].kafka) as producer:
            await fill(producer, b"0")
            await until(lambda: not unconsolidated(sql), SECONDS)
            kept = kept_by(sql)
            assert {name for names in kept.values() for name in names} == {"a", "b"}
            [(last,)] = sql.execute("SELECT max(id) FROM object").fetchall()
            assert isinstance(last, int)
            brokers["b"].process.kill()
            began = time.monotonic()
            await fill(producer, b"1")
            await until(lambda: not unconsolidated(sql), SECONDS)
            assert time.monotonic() - began < SECONDS
        assert set(holders(sql).values()) == {"a"}
        after = kept_by(sql, last)
        assert all("a" in after[log] for log, names in kept.items() if names == {"b"})
