"""The life of nodes: takeovers, a database that is away, and clients that go on."""

import asyncio
from contextlib import AsyncExitStack

import httpx
import pika
import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from posthouse import node_scopes
from posthouse.model.brokers import ClusterView
from posthouse.model.errors import InvalidConfig, NotLeader
from posthouse.model.scopes import COORDINATOR, SCOPES, scope_of_group
from posthouse.node import Node
from posthouse.node_context import NodeFailed
from posthouse.node_life import Role
from posthouse.storage.operations import Put
from posthouse.storage.shared.administration.administration import accept_loss
from posthouse.storage.shared.database import Database, DatabaseAway
from posthouse.storage.shared.membership.cluster_control import DatabaseControl
from posthouse.storage.spaces import Space
from tests.cluster.holders import coordinator, fence
from tests.cluster.nodes import CALM, coordinates, is_closed, node, nodes, until
from tests.postgres import PostgresServer

Sql = psycopg.Connection[tuple[object, ...]]


async def test_a_standby_takes_over_when_the_holder_stops(url: str) -> None:
    async with nodes(url, "b"):
        pass
    async with nodes(url, "a", "b") as (first, second):
        await first.stop()
        await until(coordinates(second), 5)
        assert second.epoch == 3
        producer = AIOKafkaProducer(bootstrap_servers=str(second.listeners["kafka"]))
        await producer.start()
        await producer.send_and_wait("t", b"1")
        await producer.stop()


async def test_a_client_goes_on_when_the_holder_changes(url: str) -> None:
    async with nodes(url, "a", "b") as (first, second):
        await until(lambda: len(first.view.brokers) == 2)
        address = ",".join(str(each.listeners["kafka"]) for each in (first, second))
        producer = AIOKafkaProducer(bootstrap_servers=address, metadata_max_age_ms=500)
        await producer.start()
        await producer.send_and_wait("t", b"1")
        await first.stop()
        await asyncio.wait_for(producer.send_and_wait("t", b"2"), 30)
        await producer.stop()


async def test_a_client_of_a_standby_waits_for_the_takeover(url: str) -> None:
    async with nodes(url, "a", "b", "c", times=CALM) as (first, *others):
        await until(lambda: len(others[0].view.brokers) == 3)
        await first.stop()
        address = others[0].listeners["admin"]
        async with httpx.AsyncClient(timeout=30) as http:
            answer = await http.get(f"http://{address}/v1/topics")
        assert answer.status_code == 200
        await until(lambda: sum(each.role is Role.COORDINATOR for each in others) == 1)


async def test_a_connection_that_waits_for_a_holder_outlives_the_takeover(url: str, sql: Sql) -> None:
    """Of an operator. For clients of queues see `test_forwarding`."""
    coordinator(sql, seconds=3)
    waiting = node(url, "a")
    await waiting.start()
    try:
        assert not coordinates(waiting)()
        address = waiting.listeners["admin"]
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert await asyncio.wait_for(reader.readexactly(12), 15) == b"HTTP/1.1 200"
        assert coordinates(waiting)()
        writer.close()
    finally:
        await waiting.stop()


async def test_the_holder_that_lost_its_lease_closes_all_and_becomes_a_standby(url: str, sql: Sql) -> None:
    async with nodes(url, "a", "b") as (first, second):
        address = first.listeners["amqp"]
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"AMQP\x00\x00\x09\x01")
        assert await reader.read(4)
        fence(sql)
        both = (first, second)
        await until(lambda: [each.epoch for each in both if each.role is Role.COORDINATOR] == [2])
        await is_closed(reader)
        writer.close()


async def test_amqp_clients_are_told_that_the_lease_was_lost(url: str, sql: Sql) -> None:
    async with nodes(url, "a", "b") as (first, _):
        address = first.listeners["amqp"]

        def talk() -> int:
            connection = pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port))
            connection.channel().queue_declare("q")
            fence(sql)
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
                while True:
                    connection.process_data_events(1)
            return int(closed.value.reply_code)

        assert await asyncio.to_thread(talk) == 320


async def test_reads_go_on_while_the_database_is_away(postgres: PostgresServer, url: str) -> None:
    async with nodes(url, "a") as (holder,):
        where = str(holder.listeners["kafka"])
        producer = AIOKafkaProducer(bootstrap_servers=where)
        await producer.start()
        await producer.send_and_wait("t", b"1", partition=0)
        lease = holder.parts.life.lease
        assert lease is not None
        postgres.pause()
        try:
            await until(lambda: not lease.is_valid)
            await until(lambda: lease.is_cut_off)
            # It knows where to begin: what the bounds are now, only the database could say.
            consumer = AIOKafkaConsumer(bootstrap_servers=where)
            await consumer.start()
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek(TopicPartition("t", 0), 0)
            found = await asyncio.wait_for(consumer.getone(), 20)
            assert found.value == b"1"
            await consumer.stop()
            sending = asyncio.create_task(producer.send_and_wait("t", b"2", partition=0))
            await asyncio.sleep(1)
            assert not sending.done()
            amqp = holder.listeners["amqp"]
            reader, writer = await asyncio.open_connection(amqp.host, amqp.port)
            writer.write(b"AMQP\x00\x00\x09\x01")
            await is_closed(reader)
            writer.close()
        finally:
            postgres.resume()
        await until(lambda: lease.is_valid)
        assert holder.role is Role.COORDINATOR
        assert holder.epoch == lease.epoch
        await asyncio.wait_for(sending, 20)
        await producer.stop()


async def test_a_standby_does_not_take_over_from_a_database_that_lost_commits(url: str, sql: Sql) -> None:
    async with nodes(url, "a", "b") as (first, second):
        sql.execute("UPDATE scope SET epoch = epoch + 5")
        await until(lambda: min(first.view.epoch, second.view.epoch) == 6)
        holder, standby = first, second
        sql.execute("UPDATE scope SET epoch = 2")
        sql.execute("UPDATE lease SET until = '-infinity'")
        await until(lambda: holder.parts.registry.loss and standby.parts.registry.loss)
        await until(lambda: holder.role is standby.role is Role.MEMBER)
        await asyncio.sleep(0.5)
        assert holder.role is standby.role is Role.MEMBER
        sql.execute("UPDATE cluster SET confirmed_losses = confirmed_losses + 1, loss = NULL")
        await until(lambda: Role.COORDINATOR in (holder.role, standby.role))


async def test_a_takeover_that_comes_before_the_heartbeat_finds_the_loss(url: str, sql: Sql) -> None:
    holder = coordinator(sql, seconds=1.5)
    sql.execute("INSERT INTO committer (incarnation, path, number) VALUES (%s, 0, 1000)", [holder])
    async with AsyncExitStack() as stack:
        one = node(url, "a")
        await one.start()
        stack.push_async_callback(one.stop)
        assert (one.role, one.view.commits) == (Role.MEMBER, 1000)

        async def no_heartbeat() -> ClusterView:
            raise DatabaseAway("no heartbeat")

        one.parts.registry.beat = no_heartbeat  # type: ignore[method-assign]
        sql.execute("UPDATE committer SET number = 900")  # as the promoted standby has it
        await until(lambda: one.parts.registry.loss)
        assert one.role is Role.MEMBER
        # A broker that has seen nothing refuses as well.
        fresh = node(url, "b")
        await fresh.start()
        stack.push_async_callback(fresh.stop)
        assert fresh.role is Role.MEMBER
        assert fresh.parts.registry.loss is not None
        assert "number 900, and had 1000" in fresh.parts.registry.loss
        await accept_loss(url)
        await until(coordinates(fresh))


async def test_the_log_says_why_the_lease_was_lost(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with nodes(url, "a") as (holder,):
        lease = holder.parts.life.lease
        assert lease is not None
        lease.fenced("the committer failed")
        await until(lambda: "closes all connections: the committer failed" in caplog.text)


async def test_two_brokers_of_one_name(url: str) -> None:
    first, again = node(url, "a"), node(url, "a")
    await first.start()
    await again.start()
    await first.ended()
    with pytest.raises(NodeFailed, match="broker_name"):
        await first.stop()
    await until(coordinates(again))
    await again.stop()


async def test_a_database_that_is_not_there() -> None:
    one = node("postgresql://postgres@127.0.0.1:1/none", "a")
    with pytest.raises(Exception, match="cannot be reached"):
        await one.start()
    with pytest.raises(InvalidConfig):
        node("postgresql://postgres@127.0.0.1:1/none", "a", memory=True)


async def broken(*arguments: object, **names: object) -> None:
    raise ValueError("an error of the broker")


async def test_a_node_that_cannot_renew_its_lease_by_its_own_error_ends(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = node(url, "a")
    await one.start()
    lease = one.parts.life.lease
    assert lease is not None
    lease.renew = broken  # type: ignore[assignment,method-assign]
    await asyncio.wait_for(one.ended(), 5)
    with pytest.raises(NodeFailed, match="an error of the broker"):
        await one.stop()
    assert "is not renewed any more" in caplog.text


@pytest.mark.parametrize("is_holder", [True, False])
async def test_a_node_that_cannot_send_heartbeats_by_its_own_error_ends(
    url: str, sql: Sql, caplog: pytest.LogCaptureFixture, is_holder: bool
) -> None:
    if not is_holder:
        coordinator(sql, seconds=60)
    one = node(url, "a")
    await one.start()
    assert one.role is (Role.COORDINATOR if is_holder else Role.MEMBER)
    one.parts.registry.beat = broken  # type: ignore[assignment,method-assign]
    await asyncio.wait_for(one.ended(), 5)
    with pytest.raises(NodeFailed, match="an error of the broker"):
        await one.stop()
    assert "no more heartbeats" in caplog.text


async def test_a_member_that_was_fenced_closes_all_and_begins_anew(url: str, sql: Sql) -> None:
    async with nodes(url, "a", "b") as (first, second):
        lease = second.parts.life.lease
        assert lease is not None
        address = second.listeners["kafka"]
        reader, writer = await asyncio.open_connection(address.host, address.port)
        sql.execute("SELECT fence(%s)", [lease.incarnation])
        await is_closed(reader)
        writer.close()
        await until(lambda: second.parts.life.lease not in (None, lease))
        again = second.parts.life.lease
        assert again is not None
        assert (again.incarnation, again.epoch) == (lease.incarnation, lease.epoch + 1)
        await until(lambda: second.parts.life.app)
        assert (first.role, second.role) == (Role.COORDINATOR, Role.MEMBER)
        assert first.epoch == 1
        producer = AIOKafkaProducer(bootstrap_servers=str(address))
        await producer.start()
        await producer.send_and_wait("t", b"1")
        await producer.stop()


def _sees_all(node: Node) -> bool:
    return len(node.view.brokers) == 2 and set(node.view.holders) == set(SCOPES)


async def test_all_brokers_see_the_leases_and_who_holds_what(url: str) -> None:
    async with nodes(url, "a", "b") as (first, second):
        await until(lambda: all(_sees_all(each) for each in (first, second)))
        for view in (first.view, second.view):
            assert view.holder_of(COORDINATOR) == view.brokers[0]
        await until(lambda: all(each.lease_seconds_left > 0 for each in second.view.brokers))
        scopes = second.parts.life.scopes
        assert scopes is not None
        assert await scopes.take(SCOPES) == set()


async def test_a_member_commits_offsets_of_groups_whose_scope_it_was_given(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_scopes, "HANDOVER_SECONDS", 0.0)
    monkeypatch.setattr(node_scopes, "SETTLED_SECONDS", 0.0)
    async with nodes(url, "a", "b") as (first, second):
        scope = scope_of_group("orders")
        control = DatabaseControl(Database(url))
        await control.want(scope, "a")
        app = second.parts.life.app
        assert app is not None
        storage = app.broker._storage
        put = Put(Space.OFFSETS, bytes(20) + b"orders", b"7")
        await until(lambda: second.view.holder_of(scope) == second.view.brokers[0])
        with pytest.raises(NotLeader, match=f"does not hold the scope {scope}"):
            await storage.commit([put])
        await control.want(scope, "b")
        await until(lambda: app.broker.holds(scope))
        await storage.commit([put])
        state = storage.shared_state
        assert state is not None
        assert await state.of_owners(Space.OFFSETS, [b"orders"]) == {put.key: b"7"}
        assert (first.role, second.role) == (Role.COORDINATOR, Role.MEMBER)
