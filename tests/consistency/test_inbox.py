"""A message that comes again changes nothing; versions tell what is new, late or missing."""

import threading
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import psycopg
import psycopg.rows
import pymysql
import pymysql.cursors
import pytest

from posthouse.consistency import AsyncInbox, BadMessage, Inbox, Newness, UnknownConnection
from posthouse.consistency.databases import Database
from posthouse.consistency.message_ids import message_id_of
from tests.consistency.applications import by_aiosqlite, by_asyncpg, by_library, by_session, plain_connection


class Refused(Exception):
    """Of the application."""


def received(url: str, id: str, *, consumer: str = "billing", fails: bool = False) -> bool:
    """Whether it was the first time."""
    with closing(plain_connection(url)) as connection:
        try:
            with Inbox(consumer).once(connection, id) as first:
                if fails:
                    raise Refused
        except Refused:
            connection.rollback()
            return first
        connection.commit()
        return first


def test_once(url: str) -> None:
    assert received(url, "a", fails=True), "its transaction was rolled back"
    assert [received(url, id) for id in "aabab"] == [True, False, True, False, False]
    assert received(url, "a", consumer="shipping"), "another consumer has not had it"


@pytest.mark.parametrize("application", [by_session, by_library])
def test_once_in_each_library(application: Any, url: str, database: Database) -> None:
    found = []

    def consume(connection: Any) -> None:
        for id in ("a", "a"):
            with Inbox("billing").once(connection, id) as first:
                found.append(first)

    application(url, consume)
    assert found == [True, False]


@pytest.mark.parametrize("application", [by_asyncpg, by_aiosqlite])
async def test_once_with_asyncio(application: Any, url: str, database: Database) -> None:
    if database.dialect != {"by_asyncpg": "postgresql"}.get(application.__name__, "sqlite"):
        pytest.skip("not with this database")
    found: list[object] = []

    async def consume(connection: Any) -> None:
        inbox = AsyncInbox("billing")
        for id in ("a", "a"):
            async with inbox.once(connection, id) as first:
                found.append(first)
        found.extend([(await inbox.latest(connection, "order-1", each)).newness for each in (1, 3, 3, 2)])
        found.append(await inbox.forget(connection, older_than_days=1))

    await application(url, consume)
    assert found == [True, False, Newness.NEW, Newness.NEW, Newness.REPEATED, Newness.LATE, 0]


def test_two_at_the_same_time(url: str) -> None:
    """The second waits for the end of the first one's transaction."""
    results: list[bool] = []
    with closing(plain_connection(url)) as connection:
        with Inbox("billing").once(connection, "a") as first:
            other = threading.Thread(target=lambda: results.append(received(url, "a")))
            other.start()
            other.join(0.3)
            assert first and other.is_alive() and not results
        connection.commit()
    other.join(60)
    assert results == [False]


def test_versions(url: str) -> None:
    inbox = Inbox("billing")
    with closing(plain_connection(url)) as connection:
        updates = [inbox.latest(connection, "order-1", version) for version in (4, 5, 5, 3, 8)]
        assert [each.newness for each in updates] == ["new", "new", "repeated", "late", "new"]
        assert list(map(bool, updates)) == [True, True, False, False, True]
        assert [list(each.missing) for each in updates] == [[], [], [], [], [6, 7]]
        assert inbox.latest(connection, "order-2", 1) and Inbox("shipping").latest(connection, "order-1", 1)
        connection.rollback()
        assert inbox.latest(connection, "order-1", 4).before is None
        connection.commit()


def test_old_messages_are_forgotten(url: str, database: Database) -> None:
    assert received(url, "old") and received(url, "new") and received(url, "old", consumer="shipping")
    with database.transaction():
        text = "UPDATE posthouse_inbox SET received_at = received_at - ? WHERE message_id = 'old'"
        database.run(text, [3 * 86_400_000])
    with closing(plain_connection(url)) as connection:
        assert Inbox("billing").forget(connection, older_than_days=2) == 1
        connection.commit()
    assert received(url, "old") and not received(url, "new")
    assert not received(url, "old", consumer="shipping")
    with closing(plain_connection(url)) as connection, pytest.raises(BadMessage, match="more than 0"):
        Inbox("billing").forget(connection, older_than_days=0)


def with_dicts(url: str) -> Any:
    """A connection whose cursors make dictionaries of rows."""
    connection = plain_connection(url)
    if url.startswith("sqlite"):
        connection.row_factory = lambda cursor, row: {
            each[0]: value for each, value in zip(cursor.description, row, strict=True)
        }
    elif url.startswith("postgresql"):
        connection.row_factory = psycopg.rows.dict_row
    else:
        connection.cursorclass = pymysql.cursors.DictCursor
    return connection


def test_rows_as_dictionaries(url: str) -> None:
    with closing(with_dicts(url)) as connection:
        found = [Inbox("billing").latest(connection, "order-1", version).newness for version in (1, 3, 2)]
    assert found == ["new", "new", "late"]


def test_rows_as_values(url: str) -> None:
    if not url.startswith("postgresql"):
        pytest.skip("psycopg only")
    with psycopg.connect(url, row_factory=psycopg.rows.scalar_row) as connection:
        found = [Inbox("billing").latest(connection, "order-1", version).newness for version in (1, 3, 2)]
    assert found == ["new", "new", "late"]


def test_a_connection_that_does_not_count(url: str) -> None:
    if not url.startswith("postgresql"):
        pytest.skip("psycopg only")
    with psycopg.connect(url) as connection:
        with (
            connection.pipeline(),
            pytest.raises(UnknownConnection, match="do not use a pipeline"),
            Inbox("billing").once(connection, "a"),
        ):
            pass
        connection.rollback()


def test_ids_that_differ_by_a_blank(url: str) -> None:
    assert received(url, "a") and received(url, "a ") and received(url, "A")
    with closing(plain_connection(url)) as connection:
        inbox = Inbox("billing")
        assert inbox.latest(connection, "x", 5) and inbox.latest(connection, "x ", 1)
        assert Inbox("billing ").latest(connection, "x", 1)


def test_two_consumers_of_one_entity(url: str) -> None:
    """Both look at its version at the same time: one waits, and neither fails."""
    if url.startswith("sqlite"):
        pytest.skip("has one writer at a time")
    inbox = Inbox("billing")
    with closing(plain_connection(url)) as connection:
        inbox.latest(connection, "order-1", 1)
        connection.commit()
    errors: list[BaseException] = []
    both = threading.Barrier(2, timeout=60)

    def consume(first: int) -> None:
        try:
            with closing(plain_connection(url)) as connection:
                for version in range(first, 200, 2):
                    both.wait()
                    inbox.latest(connection, "order-1", version)
                    connection.commit()
        except (psycopg.Error, pymysql.Error, threading.BrokenBarrierError) as error:
            errors.append(error)
            both.abort()

    threads = [threading.Thread(target=consume, args=[first]) for first in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors


@pytest.mark.parametrize("id", ["", "x" * 201])
def test_ids_that_cannot_be(id: str, url: str) -> None:
    with pytest.raises(BadMessage, match="1 to 200 characters"):
        received(url, id)


def test_versions_that_cannot_be(url: str) -> None:
    with closing(plain_connection(url)) as connection, pytest.raises(BadMessage, match="a number from 0"):
        Inbox("billing").latest(connection, "order-1", -1)


class ConfluentMessage:
    def __init__(self, headers: list[tuple[str, bytes]] | None) -> None:
        self._headers = headers

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self._headers

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 4711


def kafka_record(*headers: tuple[str, bytes]) -> SimpleNamespace:
    return SimpleNamespace(topic="orders", partition=3, offset=4711, headers=headers)


@pytest.mark.parametrize(
    ("message", "id"),
    [
        ("text", "text"),
        (ConfluentMessage([("other", b"x"), ("amqp.message-id", b"one")]), "one"),
        (ConfluentMessage(None), "orders/3/4711"),
        (ConfluentMessage([("webhook-id", b"\xff\x01")]), "hex:ff01"),
        (ConfluentMessage([("webhook-id", b"a\x00")]), "hex:6100"),
        (ConfluentMessage([("ce_id", b"1"), ("ce_source", b"/shop")]), "/shop/1"),
        (ConfluentMessage([("ce_id", b"1")]), "1"),
        (kafka_record(("UNIQ_KEY", b"7F00")), "7F00"),
        (kafka_record(("amqp.message-id", b"")), "orders/3/4711"),
        (SimpleNamespace(message_id="of pika", headers=None), "of pika"),
        (SimpleNamespace(headers={"amqp.message-id": "of a mapping"}), "of a mapping"),
        (SimpleNamespace(properties=SimpleNamespace(message_id="inside")), "inside"),
    ],
)
def test_ids_of_messages(message: object, id: str) -> None:
    assert message_id_of(message) == id


def test_a_message_without_an_id() -> None:
    with pytest.raises(BadMessage, match="a SimpleNamespace without an id; pass its id as text"):
        message_id_of(SimpleNamespace(body=b"x"))
