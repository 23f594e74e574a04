"""URLs, clocks and indexes of databases."""

import time

import pytest

from posthouse.client import Client
from posthouse.client.errors import RequestRefused
from posthouse.consistency import log_target
from posthouse.consistency.databases import Database, open_database
from posthouse.consistency.dialects import now_ms
from posthouse.consistency.errors import BadDatabase
from posthouse.consistency.log_target import LogTarget
from posthouse.consistency.refusals import is_about_messages
from posthouse.consistency.relay import Counts, Relay
from posthouse.records.partitioner import partition_of
from posthouse.testing import ThreadBroker
from tests.consistency.relays import publish, table_of


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mysql://app@localhost:x/shop", "the URL of the database cannot be read"),
        ("mysql://app@localhost/shop?ssl_cas=x", "'ssl_cas' is no parameter of a MariaDB URL"),
        ("mysql://app@127.0.0.1:1/shop?ssl_ca=/missing.pem", "the certificates of the database's URL"),
        ("postgresql://app@localhost/shop?nothing=1", "the URL of the database cannot be read"),
    ],
)
def test_urls_that_cannot_be(url: str, sentence: str) -> None:
    with pytest.raises(BadDatabase, match=sentence):
        open_database(url)


def test_parameters_of_a_mariadb_url(monkeypatch: pytest.MonkeyPatch) -> None:
    import pymysql

    options: dict[str, object] = {}

    def connect(**given: object) -> None:
        options.update(given)
        raise pymysql.OperationalError("enough")

    monkeypatch.setattr(pymysql, "connect", connect)
    with pytest.raises(Exception, match="enough"):
        open_database("mysql+pymysql://a%40b:c@db/my%20shop?ssl_ca=/ca.pem&ssl_verify_cert=true&charset=utf8")
    wanted = {
        "host": "db",
        "user": "a@b",
        "database": "my shop",
        "ssl_ca": "/ca.pem",
        "ssl_verify_cert": True,
        "charset": "utf8mb4",
    }
    assert {name: options[name] for name in wanted} == wanted


def test_the_clock(database: Database) -> None:
    with database.transaction():
        [[now]] = database.run(f"SELECT {now_ms(database.dialect)}").rows
    assert abs(now - time.time() * 1000) < 60_000


def test_the_clock_depends_on_no_local_time(database: Database) -> None:
    if database.dialect != "mariadb":
        pytest.skip("others have no local time")
    found = []
    with database.transaction():
        for time_zone in ("+00:00", "+05:30"):
            database.run(f"SET time_zone = '{time_zone}'")
            database.run("SET timestamp = 1792891800.5")
            [[now]] = database.run(f"SELECT {now_ms(database.dialect)}").rows
            found.append(now)
        database.run("SET timestamp = DEFAULT")
    assert found == [1792891800500] * 2


def test_the_clock_of_a_relay_is_no_fault_of_messages() -> None:
    assert not is_about_messages(RequestRefused("the timestamp is too far in the future", 32))


def test_messages_that_are_set_aside_are_not_in_the_index(url: str, topic: str, database: Database) -> None:
    if database.dialect != "sqlite":
        pytest.skip("for all, but only SQLite's plan does not depend on statistics")
    publish(url, topic, "1")
    with database.transaction():
        rows = database.run(
            "EXPLAIN QUERY PLAN "
            "SELECT id FROM posthouse_outbox WHERE shard = 1 AND failed IS NULL ORDER BY id"
        ).rows
        later = database.run(
            "EXPLAIN QUERY PLAN SELECT min(deliver_at) FROM posthouse_outbox WHERE deliver_at > 5"
        ).rows
        [[text]] = database.run("SELECT sql FROM sqlite_master WHERE name = 'posthouse_outbox_waiting'").rows
    assert "posthouse_outbox_waiting" in str(rows) and "posthouse_outbox_later" in str(later)
    assert "failed IS NULL" in text


def test_partitions_that_are_added_are_seen(
    url: str,
    broker: ThreadBroker,
    client: Client,
    topic: str,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = next(str(number) for number in range(100) if partition_of(str(number).encode(), 4) == 3)
    client.create_topic(topic, partitions=1)
    monkeypatch.setattr(log_target, "_TOPICS_SECONDS", 0)
    with LogTarget(broker.kafka) as target:
        relay = Relay(table_of(database), target, Counts())
        for value in "12":
            publish(url, topic, value, key=key)
            relay.send_all()
            if value == "1":
                client.add_partitions(topic, 4)
    assert [message.partition for message in client.messages(topic)] == [0, 3]
