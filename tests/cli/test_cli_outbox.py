"""The outbox commands, on an SQLite database."""

import json
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from posthouse.client import Client
from posthouse.consistency import Outbox
from tests.cli.programs import PROGRAM, environment, inside, one_sentence, posthouse

SECONDS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def made(path: Path) -> str:
    """The URL of a database with the tables."""
    url = f"sqlite:///{path}"
    done = inside("outbox", "init", "--database", url)
    assert done.returncode == 0, done
    assert "posthouse outbox relay" in done.stderr
    return url


def publish(path: Path, topic: str, *values: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for value in values:
            Outbox().publish(connection, topic, value, key="k")
        connection.commit()


def status(url: str, *more: str) -> Any:
    return json.loads(inside("outbox", "status", "--database", url, "--json", *more).stdout)


def test_to_another_broker(made: str, path: Path, kafka: str, topic: str) -> None:
    with Client(kafka) as client:
        client.create_topic(topic)
        publish(path, topic, "1", "2")
        done = inside("outbox", "relay", "--database", made, "--once", "--to", f"kafka://{kafka}")
        assert (done.returncode, done.stderr) == (0, "sent 2 messages\n")
        assert [message.value for message in client.messages(topic)] == [b"1", b"2"]


def test_a_target_that_is_none(made: str) -> None:
    done = inside("outbox", "relay", "--database", made, "--to", "ftp://user:secret@host")
    sentence = one_sentence(done, 2)
    assert "no target of a relay" in sentence and "secret" not in sentence


def test_from_nothing_to_a_topic(made: str, path: Path, kafka: str, topic: str) -> None:
    publish(path, topic, "1", "2")
    assert status(made)["due"] == 2
    assert "2 messages waiting, 2 of them due" in inside("outbox", "status", "--database", made).stderr
    done = inside("outbox", "relay", "--database", made, "--once", bootstrap=kafka)
    assert (done.returncode, done.stderr) == (0, "sent 2 messages\n")
    with Client(kafka) as client:
        assert [message.value for message in client.messages(topic)] == [b"1", b"2"]
    assert status(made) == {
        "waiting": 0,
        "due": 0,
        "set_aside": 0,
        "oldest_due_ms": None,
        "first_set_aside": [],
        "stopped_shards": [],
    }


def test_messages_that_are_set_aside(made: str, path: Path, kafka: str, topic: str) -> None:
    with Client(kafka) as client:
        client.create_topic(topic, partitions=1, settings={"max.message.bytes": "1000"})
        publish(path, topic, "x" * 2000)
        done = inside("outbox", "relay", "--database", made, "--once", bootstrap=kafka)
        assert done.returncode == 0
        assert done.stderr == "sent 0 messages; 1 set aside, see 'posthouse outbox status'\n"
        shown = inside("outbox", "status", "--database", made)
        assert "1 message set aside; '--retry' tries them again" in shown.stderr
        assert "is larger than topic" in shown.stdout
        client.change_topic(topic, settings={"max.message.bytes": "100000"})
        retried = inside("outbox", "status", "--database", made, "--retry")
        assert "1 message will be tried again" in retried.stderr
        assert inside("outbox", "relay", "--database", made, "--once", bootstrap=kafka).stderr == (
            "sent 1 message\n"
        )
        assert len(list(client.messages(topic))) == 1


def test_a_relay_that_runs_until_it_is_stopped(made: str, path: Path, kafka: str, topic: str) -> None:
    with Client(kafka) as client:
        client.create_topic(topic, partitions=1)
        command = [*PROGRAM, "outbox", "relay", "--database", made, "--poll-seconds", "0.05"]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=environment(POSTHOUSE_BOOTSTRAP=kafka)
        )
        assert process.stderr is not None
        try:
            assert process.stderr.readline() == f"relaying to {kafka}; Ctrl-C ends it\n"
            publish(path, topic, "1")
            deadline = time.monotonic() + SECONDS
            while not list(client.messages(topic)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.stderr.read() == "sent 1 message\n"
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


def test_a_database_that_was_restored(made: str, path: Path, kafka: str, topic: str) -> None:
    publish(path, topic, "1")
    inside("outbox", "relay", "--database", made, "--once", bootstrap=kafka)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE posthouse_outbox_shard SET batch = 0")
        connection.commit()
    publish(path, topic, "2")
    done = inside("outbox", "relay", "--database", made, "--once", bootstrap=kafka)
    assert done.returncode == 1 and "sent 0 messages" in done.stderr
    assert "posthouse outbox rename" in inside("outbox", "status", "--database", made).stderr
    [stopped] = status(made)["stopped_shards"]
    assert "posthouse outbox rename" in stopped["reason"]
    assert "the outbox is now 'outbox-" in inside("outbox", "rename", "--database", made).stderr
    done = inside("outbox", "relay", "--database", made, "--once", bootstrap=kafka)
    assert (done.returncode, done.stderr) == (0, "sent 1 message\n")
    with Client(kafka) as client:
        assert [message.value for message in client.messages(topic)] == [b"1", b"2"]


@pytest.mark.parametrize("dialect", ["postgresql", "mariadb", "sqlite"])
def test_statements_for_a_migration(dialect: str) -> None:
    done = inside("outbox", "init", "--print", dialect)
    assert done.returncode == 0
    for table in ("posthouse_outbox", "posthouse_outbox_shard", "posthouse_inbox", "posthouse_inbox_version"):
        assert f"CREATE TABLE {table} (" in done.stdout
    assert done.stdout.count(";\n") >= 7


def test_the_printed_statements_make_the_tables(path: Path, kafka: str, topic: str) -> None:
    script = inside("outbox", "init", "--print", "sqlite").stdout
    names = set()
    for each in (path, path.with_name("staging.db")):
        with closing(sqlite3.connect(each)) as connection:
            connection.executescript(script)
            names.update(connection.execute("SELECT DISTINCT name FROM posthouse_outbox_shard").fetchall())
    assert len(names) == 2, "each database has a name of its own"
    publish(path, topic, "1")
    done = inside("outbox", "relay", "--database", f"sqlite:///{path}", "--once", bootstrap=kafka)
    assert done.stderr == "sent 1 message\n"


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("init",), 2, "give the URL of a database, or --print"),
        (("init", "--print", "oracle"), 2, "'oracle' is none of postgresql, mariadb, sqlite"),
        (("init", "--print", "sqlite", "--as", "flyway"), 2, "'flyway' is none of sql, alembic, django"),
        (("init", "--as", "django"), 2, "add --print with the kind of database"),
        (("init", "--print", "sqlite", "--as", "django", "--after", "1"), 1, "give APP.NAME"),
        (("relay", "--database", "oracle://x"), 1, "'oracle' is no database that can have an outbox"),
        (("relay", "--database", "sqlite:///:memory:"), 1, "an outbox has to be in a file"),
        (("status", "--database", "postgresql://x@127.0.0.1:1/x"), 1, "the database cannot be reached"),
    ],
)
def test_misuse(arguments: tuple[str, ...], status: int, sentence: str) -> None:
    assert sentence in one_sentence(inside("outbox", *arguments), status)


def test_a_database_without_tables(path: Path) -> None:
    done = posthouse("outbox", "status", "--database", f"sqlite:///{path}")
    assert "make its tables with 'posthouse outbox init" in one_sentence(done, 1)
