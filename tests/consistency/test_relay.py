"""Relays: every message once, those of one key in order, whatever dies and whoever else relays."""

import threading
import time
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from posthouse.client import Client
from posthouse.client.errors import BrokerUnreachable, RequestRefused
from posthouse.consistency import Outbox
from posthouse.consistency.databases import Database, open_database
from posthouse.consistency.errors import BrokerAhead, LeaseLost, NoTables
from posthouse.consistency.log_target import LogTarget
from posthouse.consistency.outbox import shard_of
from posthouse.consistency.relaying import Relaying
from posthouse.testing import ThreadBroker
from tests.consistency.applications import by_library
from tests.consistency.relays import Killed, publish, relay_of, relaying, released, table_of, until, values

KEYS = ("ann", "bob", "cleo")


def test_messages_come_once_and_in_order(
    url: str, broker: ThreadBroker, client: Client, topic: str, database: Database
) -> None:
    client.create_topic(topic, partitions=3)
    for number in range(20):
        for key in KEYS:
            publish(url, topic, f"{key} {number}", key=key)
    publish(url, topic, "without a key")
    with relay_of(url, broker, batch_size=7) as relay:
        assert relay.send_all() == 61
        assert relay.send_all() == 0
    found = values(client, topic)
    assert len(found) == 61 and found.count("without a key") == 1
    for key in KEYS:
        assert [each for each in found if each.startswith(key)] == [f"{key} {number}" for number in range(20)]
    state = table_of(database).state()
    assert (state.waiting, state.due, state.failed, state.oldest_ms) == (0, 0, 0, None)


def test_what_a_consumer_gets(url: str, broker: ThreadBroker, client: Client, topic: str) -> None:
    by_library(
        url,
        lambda connection: Outbox().publish(
            connection,
            topic,
            {"a": 1},
            key="k",
            headers={"h": "x", "n": None, "amqp.message-id": "not this"},
            message_id="id-1",
        ),
    )
    with relay_of(url, broker) as relay:
        relay.send_all()
    [message] = client.messages(topic)
    assert (message.key, message.value) == (b"k", b'{"a":1}')
    assert list(message.headers) == [("h", b"x"), ("n", None), ("amqp.message-id", b"id-1")]


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_relay_dies(dies: str, url: str, broker: ThreadBroker, client: Client, topic: str) -> None:
    publish(url, topic, "1", "2", key="k")
    with pytest.raises(Killed), relay_of(url, broker, dies=dies) as relay:
        relay.send_all()
    publish(url, topic, "3", key="k")
    with relay_of(url, broker, owner="b") as other:
        assert other.send_all() == 0, "the lease is not over"
        released(url)
        assert other.send_all() == 3
        assert other.send_all() == 0
    assert values(client, topic) == ["1", "2", "3"]


def test_a_relay_that_wakes_up_after_its_lease(
    url: str, broker: ThreadBroker, client: Client, topic: str
) -> None:
    """It has noted a batch and not sent it, or sent it and not ended it, when another one takes over."""
    publish(url, topic, "1", "2", key="k")
    shard = shard_of(b"k")
    with open_database(url) as database, LogTarget(broker.kafka) as target:
        table = table_of(database)
        turn = table.take(shard)
        assert turn is not None
        name = turn.name
        batch = table.next_batch(shard, 10)
        assert batch is not None
        released(url)
        with relay_of(url, broker, owner="b") as other:
            assert other.send_all() == 2
            with pytest.raises(BrokerAhead):
                target.write(name, batch)  # now it goes on
            publish(url, topic, "3", key="k")
            assert other.send_all() == 1
        with pytest.raises(LeaseLost):
            table.next_batch(shard, 10)
        with pytest.raises(BrokerAhead):
            target.write(name, batch)
    assert values(client, topic) == ["1", "2", "3"]


def test_two_relays_of_one_batch_at_once(url: str, broker: ThreadBroker, client: Client, topic: str) -> None:
    """Both believe that the shard is theirs, and send the same batch as fast as they can."""
    client.create_topic(topic, partitions=1)
    publish(url, topic, *map(str, range(50)), key="k")
    shard = shard_of(b"k")
    with open_database(url) as database:
        table = table_of(database)
        turn = table.take(shard)
        assert turn is not None
        name = turn.name
        made = table.next_batch(shard, 100)
    assert made is not None
    batch = replace(made, is_new=False)  # as the second relay finds it
    done = threading.Barrier(3, timeout=60)

    def send() -> None:
        with LogTarget(broker.kafka) as target:
            while True:
                try:
                    target.write(name, batch)
                    break
                except (RequestRefused, BrokerUnreachable):
                    time.sleep(0.01)
        done.wait()

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    done.wait()
    for thread in threads:
        thread.join()
    assert values(client, topic) == list(map(str, range(50)))


def test_messages_that_the_broker_refuses_are_set_aside(
    url: str, broker: ThreadBroker, client: Client, topic: str, database: Database
) -> None:
    client.create_topic(topic, settings={"max.message.bytes": "2000"})
    publish(url, topic, "1", "x" * 3000, "2", key="k")
    publish(url, topic, "3", key="k")
    with relay_of(url, broker) as relay:
        assert relay.send_all() == 3
        assert relay.counts.set_aside == 1
    assert values(client, topic) == ["1", "2", "3"]
    table = table_of(database)
    assert table.state().failed == 1 and table.state().waiting == 0
    [(_, _, found, reason)] = table.failures(10)
    assert found == topic and "is larger than topic" in reason
    client.change_topic(topic, settings={"max.message.bytes": "1000000"})
    assert table.retry_failed() == 1
    with relay_of(url, broker) as relay:
        assert relay.send_all() == 1
    assert len(values(client, topic)) == 4


def test_a_batch_of_nothing_but_refused_messages(
    url: str, broker: ThreadBroker, client: Client, topic: str
) -> None:
    client.create_topic(topic, settings={"max.message.bytes": "2000"})
    publish(url, topic, "x" * 3000, key="k")
    with relay_of(url, broker) as relay:
        assert relay.send_all() == 0 and relay.counts.set_aside == 1
        publish(url, topic, "1", key="k")
        assert relay.send_all() == 1
    assert values(client, topic) == ["1"]


def test_delivery_at_a_time(url: str, broker: ThreadBroker, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=1)
    at = time.time() + 2
    by_library(url, lambda connection: Outbox().publish(connection, topic, "later", deliver_at=at))
    publish(url, topic, "now")
    with relaying(url, broker):
        until(lambda: values(client, topic) == ["now", "later"])
    assert [message.timestamp >= at * 1000 - 1 for message in client.messages(topic)] == [False, True]


def test_several_relays_while_messages_are_published(
    url: str, broker: ThreadBroker, client: Client, topic: str
) -> None:
    client.create_topic(topic, partitions=2)
    with relaying(url, broker, owner="a") as first, relaying(url, broker, owner="b") as second:
        for number in range(30):
            for key in KEYS:
                publish(url, topic, f"{key} {number}", key=key)
        until(lambda: first.counts.sent + second.counts.sent >= 90)
    found = values(client, topic)
    assert len(found) == 90
    for key in KEYS:
        assert [each for each in found if each.startswith(key)] == [f"{key} {number}" for number in range(30)]


def test_postgresql_tells_of_new_messages(url: str, broker: ThreadBroker, client: Client, topic: str) -> None:
    if not url.startswith("postgresql"):
        pytest.skip("others are polled")
    client.create_topic(topic)
    with relaying(url, broker, poll_seconds=3600) as running:
        for number in count(1):
            publish(url, topic, str(number))
            until(lambda number=number: running.counts.sent == number)  # type: ignore[misc]
            if number == 3:
                break
        running.stop.set()
        publish(url, topic, "wake up")  # it waits for nothing else


def test_a_database_that_loses_the_connection(
    url: str, broker: ThreadBroker, client: Client, topic: str, postgres: Any
) -> None:
    if not url.startswith("postgresql"):
        pytest.skip("not with this database")
    client.create_topic(topic)
    with relaying(url, broker) as running:
        publish(url, topic, "1")
        until(lambda: running.counts.sent == 1)
        name = url.rpartition("/")[2]
        postgres.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'", "postgres"
        )
        until(lambda: running.counts.errors > 0)
        publish(url, topic, "2")
        until(lambda: running.counts.sent == 2)
    assert values(client, topic) == ["1", "2"]


def test_a_database_that_cannot_be_reached_for_a_while(
    url: str, broker: ThreadBroker, client: Client, topic: str
) -> None:
    """As while it starts again: that is no reason to end."""
    client.create_topic(topic)
    publish(url, topic, "1")
    urls = iter(["postgresql://x@127.0.0.1:1/x", "mysql://x@127.0.0.1:1/x"])
    with LogTarget(broker.kafka) as target:
        running = Relaying(lambda: open_database(next(urls, url)), target, "a")
        thread = threading.Thread(target=running.run)
        thread.start()
        until(lambda: running.counts.sent == 1 or not thread.is_alive())
        running.stop.set()
        thread.join(60)
    assert (running.counts.sent, running.counts.errors) == (1, 2)


def test_a_relay_that_waits_is_stopped_soon(url: str, broker: ThreadBroker) -> None:
    waits = threading.Event()

    def opened() -> Database:
        database = open_database(url)
        wait = database.wait

        def noted(seconds: float) -> bool:
            waits.set()
            return wait(seconds)

        database.wait = noted  # type: ignore[method-assign]
        return database

    with LogTarget(broker.kafka) as target:
        running = Relaying(opened, target, "a", poll_seconds=3600)
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        assert waits.wait(60)
        running.stop.set()
        thread.join(60)
        assert not thread.is_alive()


def test_no_tables(empty_url: str) -> None:
    with open_database(empty_url) as database, pytest.raises(NoTables, match="posthouse outbox init"):
        table_of(database).check()
