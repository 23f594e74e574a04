"""A change and its message are there together, or neither is, whichever library the application uses."""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from posthouse.consistency import AsyncOutbox, BadMessage, NoTransaction, Outbox, UnknownConnection
from posthouse.consistency.databases import Database
from posthouse.consistency.outbox_table import OutboxMessage, OutboxTable
from tests.consistency import applications
from tests.consistency.applications import (
    by_aiosqlite,
    by_async_psycopg,
    by_async_session,
    by_asyncpg,
    by_engine,
    by_library,
    by_session,
    plain_connection,
    sqlalchemy_url,
)


class Refused(Exception):
    """Of the application."""


def due(database: Database) -> list[OutboxMessage]:
    """What a relay would send, by shard."""
    table = OutboxTable(database, "tests", lease_seconds=60)
    found: list[OutboxMessage] = []
    for shard in table.busy_shards():
        assert table.take(shard)
        batch = table.next_batch(shard, 100)
        assert batch is not None
        found += batch.messages
    return found


def orders(database: Database) -> int:
    with database.transaction():
        [[count]] = database.run("SELECT count(*) FROM orders").rows
    return int(count)


@pytest.mark.parametrize("application", [by_session, by_engine, by_library])
def test_both_or_neither(
    application: Callable[[str, Callable[[Any], None]], None], url: str, database: Database
) -> None:
    def fails(connection: Any) -> None:
        Outbox().publish(connection, "orders", b"never")
        raise Refused

    with pytest.raises(Refused):
        application(url, fails)
    assert orders(database) == 0 and not due(database)
    ids = []
    application(
        url,
        lambda connection: ids.append(
            Outbox().publish(
                connection,
                "orders",
                {"item": "tea", "price": "3 €"},
                key="customer-7",
                headers={"source": "shop", "trace": b"\xff\x00", "empty": None},
            )
        ),
    )
    assert orders(database) == 1
    [message] = due(database)
    assert [message.id] == ids
    assert (message.topic, message.key, message.value) == (
        "orders",
        b"customer-7",
        '{"item":"tea","price":"3 €"}'.encode(),
    )
    assert message.headers == [("source", b"shop"), ("trace", b"\xff\x00"), ("empty", None)]


@pytest.mark.parametrize("application", [by_async_session, by_asyncpg, by_async_psycopg, by_aiosqlite])
async def test_both_or_neither_with_asyncio(application: Any, url: str, database: Database) -> None:
    dialect = {"by_asyncpg": "postgresql", "by_async_psycopg": "postgresql", "by_aiosqlite": "sqlite"}
    if database.dialect not in (dialect.get(application.__name__, database.dialect),):
        pytest.skip("not with this database")
    if database.dialect == "mariadb":
        pytest.skip("no asynchronous library for MariaDB is installed")

    async def fails(connection: Any) -> None:
        await AsyncOutbox().publish(connection, "orders", "never")
        raise Refused

    async def publishes(connection: Any) -> None:
        await AsyncOutbox().publish(connection, "orders", None, key=b"k", message_id="one")

    with pytest.raises(Refused):
        await application(url, fails)
    assert orders(database) == 0 and not due(database)
    await application(url, publishes)
    assert orders(database) == 1
    assert [(each.id, each.key, each.value) for each in due(database)] == [("one", b"k", None)]


def test_later(url: str, database: Database) -> None:
    now = datetime.now(UTC)
    times: list[datetime | float] = [now - timedelta(days=1), now + timedelta(days=1), now.timestamp() - 1]

    def publish(connection: Any) -> None:
        for number, at in enumerate(times):
            Outbox().publish(connection, "orders", f"{number}", deliver_at=at)

    by_library(url, publish)
    assert sorted(each.value or b"" for each in due(database)) == [b"0", b"2"]
    left = OutboxTable(database, "tests", lease_seconds=60).due_in_ms()
    assert left is not None and 0 < left <= 24 * 3_600_000


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        (("no topic!", b""), {}, "the message cannot be sent"),
        (("t", {"a": object()}), {}, "the value is no JSON"),
        (("t", b""), {"deliver_at": datetime(2030, 1, 1)}, "deliver_at has no time zone"),
        (("t", b""), {"deliver_at": -1}, "seconds since 1970"),
        (("t", b""), {"message_id": "x" * 201}, "1 to 200 characters, not 201"),
        (("t", b""), {"message_id": ""}, "1 to 200 characters, not 0"),
        (("t", {"a": float("nan")}), {}, "the value is no JSON"),
        (("t", b""), {"headers": {1: "x"}}, "the name of a header is text, not 1"),
        (("t", b""), {"headers": {"a": 1}}, "bytes, text or None, not 1"),
    ],
)
def test_what_cannot_be_published(
    arguments: tuple[Any, ...], options: dict[str, Any], sentence: str, url: str, database: Database
) -> None:
    with pytest.raises(BadMessage, match=sentence):
        by_library(url, lambda connection: Outbox().publish(connection, *arguments, **options))
    assert not due(database)


def test_what_is_no_connection() -> None:
    with pytest.raises(UnknownConnection, match="no connection that is known here; pass a session"):
        Outbox().publish(object(), "t", b"")


def test_a_connection_that_commits_by_itself(url: str, database: Database) -> None:
    if database.dialect != "postgresql":
        pytest.skip("not with this database")
    with psycopg.connect(url, autocommit=True) as connection:
        with pytest.raises(NoTransaction, match="begin one around the change and the message"):
            Outbox().publish(connection, "orders", b"alone")
        with connection.transaction():
            Outbox().publish(connection, "orders", b"together")
    assert [each.value for each in due(database)] == [b"together"]


def autocommitting(url: str) -> list[Any]:
    """The last one is that of the library."""
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), isolation_level="AUTOCOMMIT")
    made: list[Any] = [engine.connect(), Session(engine)]
    plain = plain_connection(url)
    if url.startswith("sqlite"):
        plain.isolation_level = None
        if sys.version_info >= (3, 12):
            made.append(sqlite3.connect(url.removeprefix("sqlite:///"), autocommit=True))
    elif url.startswith("mysql"):
        plain.autocommit(True)
    else:
        plain.autocommit = True
    return [*made, plain]


def test_connections_that_commit_by_themselves(url: str, database: Database) -> None:
    for connection in autocommitting(url):
        with closing(connection), pytest.raises(NoTransaction):
            Outbox().publish(connection, "orders", b"alone")
    plain = autocommitting(url)[-1]
    with closing(plain), closing(plain.cursor()) as cursor:
        cursor.execute("BEGIN")
        Outbox().publish(plain, "orders", b"together")
        cursor.execute("COMMIT")
    assert [each.value for each in due(database)] == [b"together"]


async def test_asynchronous_connections_that_commit_by_themselves(url: str, database: Database) -> None:
    if database.dialect == "mariadb":
        pytest.skip("no asynchronous library for MariaDB is installed")
    engine = create_async_engine(sqlalchemy_url(url, is_async=True), isolation_level="AUTOCOMMIT")
    async with AsyncSession(engine) as session, engine.connect() as connection:
        for each in (session, connection):
            with pytest.raises(NoTransaction):
                await AsyncOutbox().publish(each, "orders", b"alone")
    await engine.dispose()
    assert not due(database)


def test_a_connection_of_the_pool(url: str) -> None:
    connection = sqlalchemy.create_engine(sqlalchemy_url(url)).raw_connection()
    with closing(connection), pytest.raises(UnknownConnection, match="pass its dbapi_connection"):
        Outbox().publish(connection, "orders", b"")


async def test_the_other_kind_of_connection(url: str) -> None:
    connection = plain_connection(url)
    with pytest.raises(UnknownConnection, match="use Outbox or Inbox"):
        await AsyncOutbox().publish(connection, "orders", b"")
    connection.close()
    if url.startswith("postgresql"):
        async with await psycopg.AsyncConnection.connect(url) as other:
            with pytest.raises(UnknownConnection, match="use AsyncOutbox or AsyncInbox"):
                Outbox().publish(other, "orders", b"")


def test_django(url: str, database: Database) -> None:
    """In a process of its own: Django's settings are global."""
    applications.run_django(url)
    assert orders(database) == 1
    assert [(each.key, each.value) for each in due(database)] == [(b"k", b"committed")]
