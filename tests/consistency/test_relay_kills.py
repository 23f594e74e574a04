"""Relays, the broker and PostgreSQL are killed at random while an application publishes.

Every message of a committed transaction is in the log once, those of one key in order, and none of a
transaction that was rolled back. A relay of the kind that people write by hand (send, then delete) is a
negative control.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psycopg
import pytest

from posthouse.client import Client
from posthouse.consistency import Outbox
from posthouse.consistency.databases import open_database
from posthouse.consistency.outbox_table import OutboxTable, init
from tests.postgres import PostgresServer, free_port, need_postgres, running_server
from tests.served import ServedBroker

KEYS: Final = 5
DEADLINE: Final = 90.0
KILLS: Final = int(os.environ.get("POSTHOUSE_KILLS", "12"))


class Surroundings:
    """Database, broker and two relays, each of which may be killed, and starts again."""

    def __init__(self, place: Path, postgres: PostgresServer, relay: str) -> None:
        self._place = place
        self._relay = relay
        self._postgres = postgres
        self.url = postgres.url()
        with open_database(self.url) as database:
            init(database)
        self._kafka = f"127.0.0.1:{free_port()}"
        self.broker = self._broker()
        with Client(self._kafka) as client:
            client.create_topic("orders", partitions=2)
        self.relays = [self._started_relay() for _ in range(2)]

    def _broker(self) -> ServedBroker:
        return ServedBroker(self._place / "data", kafka=self._kafka, amqp="off", admin="off")

    def _started_relay(self) -> subprocess.Popen[bytes]:
        log = (self._place / "relays.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", self._relay, self.url, self._kafka], stdout=log, stderr=log
            )

    def kill_one(self, randomness: random.Random) -> None:
        what = randomness.choice(["relay", "relay", "broker", "postgres"])
        if what == "relay":
            number = randomness.randrange(len(self.relays))
            self._end(self.relays[number])
            self.relays[number] = self._started_relay()
        elif what == "broker":
            self.broker.kill()
            time.sleep(randomness.random() * 0.2)
            self.broker = self._broker()
        else:
            self._postgres.kill()
            time.sleep(randomness.random() * 0.2)
            self._postgres.start()

    @staticmethod
    def _end(relay: "subprocess.Popen[bytes]") -> None:
        relay.kill()
        relay.wait()

    def waiting(self) -> int:
        with open_database(self.url) as database:
            return OutboxTable(database, "", lease_seconds=1).state().waiting

    def values(self) -> list[str]:
        with Client(self._kafka) as client:
            return [(message.value or b"").decode() for message in client.messages("orders")]

    def stop(self) -> None:
        for relay in self.relays:
            self._end(relay)
        self.broker.kill()


@pytest.fixture
def surroundings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Surroundings]:
    need_postgres()
    with running_server() as postgres:
        made = Surroundings(tmp_path, postgres, getattr(request, "param", "tests.consistency.relay_process"))
        yield made
        made.stop()


class Application:
    """Publishes the numbers 0, 1, 2 … of every key, and rolls every fifth transaction back."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.committed: dict[int, list[str]] = {key: [] for key in range(KEYS)}
        self._number = 0

    def publish(self, count: int) -> None:
        with suppress(psycopg.OperationalError), psycopg.connect(self._url) as connection:
            for _ in range(count):
                self._one(connection)

    def _one(self, connection: "psycopg.Connection[object]") -> None:
        self._number += 1
        key, value = self._number % KEYS, f"{self._number % KEYS} {self._number}"
        Outbox().publish(connection, "orders", value, key=str(key), message_id=value)
        if self._number % 5 == self._number // 5 % 5:
            connection.rollback()
            return
        try:
            connection.commit()
        except psycopg.OperationalError:
            # Nobody knows whether it counts: the application would look. Its message is the answer.
            if self._is_there(value):
                self.committed[key].append(value)
            raise
        self.committed[key].append(value)

    def _is_there(self, value: str) -> bool:
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                with psycopg.connect(self._url) as connection:
                    found = connection.execute("SELECT 1 FROM witness WHERE id = %s", [value]).fetchone()
                    return found is not None
            except psycopg.OperationalError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def witness(url: str) -> None:
    """What was committed, also when the relay has removed the message already."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE witness (id text)")
        connection.execute(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO witness VALUES (NEW.message_id); RETURN NULL; END $$"
        )
        connection.execute(
            "CREATE TRIGGER noted AFTER INSERT ON posthouse_outbox FOR EACH ROW EXECUTE FUNCTION note()"
        )


def worked(surroundings: Surroundings, seed: int, kills: int) -> tuple[Application, list[str]]:
    randomness = random.Random(seed)
    witness(surroundings.url)
    application = Application(surroundings.url)
    for _ in range(kills):
        application.publish(randomness.randrange(20, 60))
        surroundings.kill_one(randomness)
    application.publish(50)
    deadline = time.monotonic() + DEADLINE
    while surroundings.waiting():
        assert time.monotonic() < deadline, "the relays do not come to an end"
        time.sleep(0.1)
    return application, surroundings.values()


@pytest.mark.timeout(300)
def test_every_committed_message_is_in_the_log_once(surroundings: Surroundings) -> None:
    application, found = worked(surroundings, seed=1, kills=KILLS)
    for key, committed in application.committed.items():
        assert len(committed) > KILLS
        assert [each for each in found if each.startswith(f"{key} ")] == committed


@pytest.mark.timeout(300)
@pytest.mark.parametrize("surroundings", ["tests.consistency.naive_relay_process"], indirect=True)
def test_a_relay_that_sends_and_then_deletes_is_caught(surroundings: Surroundings) -> None:
    application, found = worked(surroundings, seed=1, kills=6)
    assert found != sorted(set(found)) and len(found) > sum(map(len, application.committed.values()))
