"""Scopes of groups on brokers that run: spread, taken over, drained and given back, while groups go on."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from urllib.parse import quote

import httpx
import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from posthouse.model.scopes import GROUPS, Scope, scope_of_group
from posthouse.node import Node
from posthouse.node_life import Role
from tests.cluster.nodes import coordinates, node, nodes, until
from tests.cluster.test_processes import NodeProcess
from tests.late_commits import late_commits
from tests.protocols.kafka.handlers.group_wire import commit, fetch_offsets, places
from tests.protocols.kafka.wire import Wire

Sql = psycopg.Connection[tuple[object, ...]]
SECONDS = 60


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scopes move sooner than they usually do."""
    monkeypatch.setattr("posthouse.node_scopes.SETTLED_SECONDS", 1.0)
    monkeypatch.setattr("posthouse.node_scopes.HANDOVER_SECONDS", 0.05)


def held(sql: Sql) -> Counter[str]:
    """How many scopes of groups each broker holds."""
    found = sql.execute(
        "SELECT b.name FROM scope s JOIN broker b ON b.incarnation = s.holder WHERE s.name LIKE 'groups/%'"
    )
    return Counter(str(name) for [name] in found.fetchall())


def served(*brokers: Node) -> list[int]:
    """How many each broker serves."""
    return [_served(each) for each in brokers]


def _served(each: Node) -> int:
    app = each.parts.life.app
    return 0 if app is None else sum(map(app.broker.holds, GROUPS))


async def call(each: Node, path: str, **body: str) -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await http.post(f"http://{each.listeners['admin']}/v1/cluster/{path}", json=body)
        assert answer.status_code == 204, answer.text


async def test_a_broker_that_is_alone_serves_all_groups_when_it_has_started(url: str, sql: Sql) -> None:
    async with nodes(url, "a") as (only,):
        assert served(only) == [64]
        assert held(sql) == {"a": 64}


async def test_scopes_are_spread_drained_and_given_back(url: str, sql: Sql) -> None:
    async with nodes(url, "a", "b", "c") as brokers:
        first, second, third = brokers
        await until(lambda: sorted(served(*brokers)) == [21, 21, 22], SECONDS)
        assert sorted(held(sql).values()) == [21, 21, 22]
        await until(lambda: second.view.holders.keys() >= set(GROUPS))
        await call(second, "brokers/c/drain")
        seen: list[int] = []

        def is_drained() -> bool:
            seen.append(_served(third))
            return seen[-1] == 0

        await until(is_drained, SECONDS)
        assert all(before - after in (0, 1) for before, after in pairwise(seen))
        await until(lambda: served(first, second) == [32, 32], SECONDS)
        assert third.role is Role.MEMBER
        await call(third, "brokers/c/undrain")
        await until(lambda: sorted(served(*brokers)) == [21, 21, 22], SECONDS)


async def test_scopes_stay_when_a_member_becomes_the_coordinator(url: str, sql: Sql) -> None:
    async with nodes(url, "a", "b") as (first, second):
        await until(lambda: served(first, second) == [32, 32], SECONDS)
        before = sql.execute(
            "SELECT s.name, s.epoch FROM scope s JOIN broker b ON s.holder = b.incarnation WHERE b.name = 'b'"
        ).fetchall()
        await call(first, "brokers/a/drain")
        await until(coordinates(second), SECONDS)
        await until(lambda: _served(second) >= 32)
        kept = sql.execute("SELECT name, epoch FROM scope").fetchall()
        assert set(before) <= set(kept), "no scope of it was taken anew"
        await until(lambda: served(first, second) == [0, 64], SECONDS)


async def test_the_scopes_of_a_broker_that_stops_are_taken_at_once(url: str, sql: Sql) -> None:
    async with nodes(url, "a") as (first,):
        other = node(url, "b")
        await other.start()
        await until(lambda: served(first, other) == [32, 32], SECONDS)
        await other.stop()
        await until(lambda: _served(first) == 64, 5)


def test_the_scopes_of_a_killed_broker_are_taken_within_ten_seconds(url: str, sql: Sql) -> None:
    with ExitStack() as stack:
        brokers = {name: NodeProcess(url, name, "usual-times") for name in "abc"}
        for each in brokers.values():
            stack.callback(each.end)
        wait(lambda: held(sql)["b"] > 2, SECONDS)
        brokers["b"].process.kill()
        wait(lambda: held(sql)["a"] + held(sql)["c"] == len(GROUPS), 10)


def wait(is_so: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_a_group_goes_on_while_its_scope_moves(url: str) -> None:
    """Its member commits offsets at the new holder, from which all brokers have them."""
    async with nodes(url, "a", "b") as (first, second):
        await until(lambda: served(first, second) == [32, 32], SECONDS)
        scope = scope_of_group("g")
        servers = [str(each.listeners["kafka"]) for each in (first, second)]
        producer = AIOKafkaProducer(bootstrap_servers=servers)
        group = {"bootstrap_servers": servers, "group_id": "g", "auto_offset_reset": "earliest"}
        consumer = AIOKafkaConsumer("t", auto_commit_interval_ms=100, **group)
        onlooker = AIOKafkaConsumer(enable_auto_commit=False, **group)
        async with producer, onlooker:
            await producer.send_and_wait("t", b"0", partition=0)
            async with consumer:
                consuming = asyncio.create_task(consume(consumer))
                for number in range(1, 5):
                    await move(scope, first, second)
                    await producer.send_and_wait("t", b"%d" % number, partition=0)
                    async with asyncio.timeout(SECONDS):
                        while await onlooker.committed(TopicPartition("t", 0)) != number + 1:
                            await asyncio.sleep(0.1)
                consuming.cancel()


async def consume(consumer: AIOKafkaConsumer) -> None:
    while True:
        await consumer.getone()


async def move(scope: Scope, first: Node, second: Node) -> None:
    """To the other of the two."""
    holds = first.parts.life.app is not None and first.parts.life.app.broker.holds(scope)
    to = second if holds else first
    await call(first, f"scopes/{quote(scope.name, safe='')}/move", broker=to.parts.place.name)

    def is_moved() -> bool:
        app = to.parts.life.app
        return app is not None and app.broker.holds(scope)

    await until(is_moved, SECONDS)


async def test_an_offset_that_is_still_being_stored_is_found(url: str) -> None:
    async with nodes(url, "a") as (only,):
        app, address = only.parts.life.app, str(only.listeners["kafka"])
        assert app is not None
        async with Wire(address) as wire, Wire(address) as other, Wire(address) as third:
            topic = await wire.create_topic()
            assert await commit(wire, topic, {0: 1}) == [0]
            with late_commits(app.broker._storage) as late:
                committing = asyncio.create_task(commit(wire, topic, {0: 5}))
                await late.began.wait()
                fetching = asyncio.create_task(fetch_offsets(other, topic, [0]))
                for _ in range(20):  # more than enough for an answer that does not wait
                    assert places(await fetch_offsets(third, topic, [0], group="another")) == {0: -1}
                late.go_on.set()
                assert await committing == [0]
                assert places(await fetching) == {0: 5}
