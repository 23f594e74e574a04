"""The broker knows the batches of an outbox by its name, also when a database goes back or is copied."""

from contextlib import suppress
from typing import Any

import pytest

from posthouse.client import Client
from posthouse.consistency.databases import Database
from posthouse.consistency.dialects import tables_of_outbox
from posthouse.consistency.errors import BadDatabase, BrokerAhead, LeaseLost
from posthouse.consistency.log_target import LogTarget
from posthouse.consistency.outbox import shard_of
from posthouse.testing import ThreadBroker
from tests.consistency.relays import Killed, publish, relay_of, released, table_of, values

SHARD = shard_of(b"k")


def goes_back(database: Database) -> None:
    """As if a backup from before the last batch was restored."""
    with database.transaction():
        database.run("UPDATE posthouse_outbox_shard SET batch = batch - 1, rows_sent = '[]' WHERE batch > 0")


def test_a_database_that_goes_back(
    url: str, broker: ThreadBroker, client: Client, topic: str, database: Database
) -> None:
    client.create_topic(topic, partitions=1)
    publish(url, topic, "1", key="k")
    with relay_of(url, broker) as relay:
        assert relay.send_all() == 1
    goes_back(database)
    publish(url, topic, "2", key="k")
    table = table_of(database)
    with relay_of(url, broker) as relay:
        assert relay.send_all() == 0
        [(shard, reason)] = table.stopped()
        assert shard == SHARD and "posthouse outbox rename" in reason
        assert relay.send_all() == 0 and table.state().due == 1, "it stays there"
        table.rename()
        assert relay.send_all() == 1 and not table.stopped()
    assert values(client, topic) == ["1", "2"]


def test_a_relay_that_is_killed_after_the_database_went_back(
    url: str, broker: ThreadBroker, client: Client, topic: str, database: Database
) -> None:
    """Has it noted a batch with a number that the broker has, the next relay takes that for sent."""
    client.create_topic(topic, partitions=1)
    publish(url, topic, "1", key="k")
    with relay_of(url, broker) as relay:
        assert relay.send_all() == 1
    goes_back(database)
    publish(url, topic, "2", key="k")
    with suppress(Killed), relay_of(url, broker, dies="before") as relay:
        relay.send_all()
    released(url)
    with relay_of(url, broker, owner="b") as relay:
        assert relay.send_all() == 0
        table_of(database).rename()
        assert relay.send_all() == 1
    assert values(client, topic) == ["1", "2"]


def test_a_database_that_goes_back_during_a_turn(
    url: str, broker: ThreadBroker, client: Client, topic: str, database: Database
) -> None:
    """The relay notes a batch that it has not sent, with a number that the broker has."""
    client.create_topic(topic, partitions=1)
    publish(url, topic, "1", key="k")
    with relay_of(url, broker) as relay:
        assert relay.send_all() == 1
    goes_back(database)
    publish(url, topic, "2", key="k")

    class Late(LogTarget):
        def last_number(self, name: str) -> int:
            number = super().last_number(name)
            asked.append(number)
            return 0 if len(asked) == 1 else number

    asked: list[int] = []
    with Late(broker.kafka) as target, relay_of(url, broker, target=target) as relay:
        assert relay.send_all() == 0 and len(asked) == 2
    table = table_of(database)
    assert [shard for shard, _ in table.stopped()] == [SHARD]
    with database.transaction():
        [[rows]] = database.run("SELECT rows_sent FROM posthouse_outbox_shard WHERE shard = ?", [SHARD]).rows
    assert rows == "[]", "no later relay takes the batch for sent"


def test_a_batch_under_way_that_is_behind(
    url: str, broker: ThreadBroker, client: Client, topic: str, database: Database
) -> None:
    client.create_topic(topic, partitions=1)
    publish(url, topic, "1", key="k")
    table = table_of(database)
    with LogTarget(broker.kafka) as target:
        turn = table.take(SHARD)
        assert turn is not None
        name = turn.name
        batch = table.next_batch(SHARD, 10)
        assert batch is not None
        target.write(name, batch)
        with pytest.raises(BrokerAhead, match="batch 1 of"):
            target.write(name, batch)
        again = table.take(SHARD)
        assert again is not None and again.under_way is not None
        target.write(name, again.under_way)
    assert values(client, topic) == ["1"]


def test_a_name_is_drawn_when_the_statements_run(database: Database) -> None:
    names: list[Any] = []
    for _ in range(2):
        with database.transaction():
            database.run("DELETE FROM posthouse_outbox_shard")
            for text in tables_of_outbox(database.dialect)[-2:]:
                database.run(text)
            rows = database.run("SELECT DISTINCT name FROM posthouse_outbox_shard").rows
            [[count]] = database.run("SELECT count(*) FROM posthouse_outbox_shard").rows
        assert count == 16 and len(rows) == 1
        names += [name for (name,) in rows]
    assert names[0] != names[1] and all(len(name) == len("outbox-") + 32 for name in names)


def test_no_new_name_while_a_relay_works(url: str, topic: str, database: Database) -> None:
    publish(url, topic, "1", key="k")
    table = table_of(database)
    turn = table.take(SHARD)
    assert turn is not None
    with pytest.raises(BadDatabase, match="stop it, and try again"):
        table_of(database, owner="").rename()
    assert table.take(SHARD) == turn
    released(url)  # it sleeps for longer than its lease
    assert f"{table_of(database, owner='').rename()}.{SHARD}" != turn.name
    with pytest.raises(LeaseLost):
        table.next_batch(SHARD, 10)
