"""A process that commits to PostgreSQL and to the log is killed: at every step, and at random.

Whatever is in the database is in the log, once, and nothing else. A process that recovers without the row is
a negative control.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest

from posthouse.client import Client
from posthouse.consistency.two_phase import Step, TwoPhase, create_table
from tests.consistency.two_phase_process import FIRST_STEPS, NO_STEP, TOPIC
from tests.postgres import PostgresServer, free_port, need_postgres, new_database, running_server
from tests.served import ServedBroker

KILLS: Final = int(os.environ.get("POSTHOUSE_KILLS", "6"))
KILLED: Final = -9
ALLOWED: Final = {"POSTHOUSE_TRANSACTION_TWO_PHASE_COMMIT_ENABLE": "true"}
PROCESS: Final = [sys.executable, "-m", "tests.consistency.two_phase_process"]


def make_tables(url: str) -> None:
    with psycopg.connect(url) as connection:
        create_table(connection)
        connection.execute("CREATE TABLE numbers (number serial PRIMARY KEY)")


def in_database(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY number")]


def in_log(kafka: str) -> list[int]:
    """Two records tell of each number; every one of them may be there once."""
    with Client(kafka) as client:
        counted = Counter(int(message.value or b"0") for message in client.messages(TOPIC))
    assert set(counted.values()) <= {1}, counted
    assert {number for number in counted if number > 0} == {-number for number in counted if number < 0}
    return sorted(number for number in counted if number > 0)


def served(place: Path, kafka: str) -> ServedBroker:
    return ServedBroker(place / "data", kafka=kafka, amqp="off", admin="off", environment=ALLOWED)


@contextmanager
def forks(url: str, kafka: str, id: str) -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [*PROCESS, url, kafka, id, "--forks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: "subprocess.Popen[str]", step: str, count: int, how: str = "well") -> int:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{step} {count} {how}\n")
    process.stdin.flush()
    return int(process.stdout.readline())


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    need_postgres()
    with new_database(postgres) as made:
        make_tables(made)
        yield made


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[str]:
    broker = served(tmp_path, f"127.0.0.1:{free_port()}")
    with Client(broker.bootstrap) as client:
        client.create_topic(TOPIC, partitions=2)
    yield broker.bootstrap
    broker.kill()


def test_it_is_killed_at_every_step(url: str, kafka: str) -> None:
    with forks(url, kafka, "app") as process:
        expected = 0
        for step in Step:
            assert ended(process, step.name, 2) == KILLED, step
            if step not in FIRST_STEPS:
                expected += 1 + (step in (Step.DATABASE_COMMITTED, Step.COMMITTED))
            # The log may be behind: the next process takes it there, and may be killed meanwhile, too.
            for first in FIRST_STEPS:
                assert ended(process, first.name, 1) == KILLED, (step, first)
            assert ended(process, NO_STEP, 0) == 0, step
            assert len(in_database(url)) == expected, step
            assert in_log(kafka) == in_database(url), step
        assert ended(process, NO_STEP, 3) == 0
    assert in_log(kafka) == in_database(url)


def test_a_process_that_forgets_the_row_is_caught(url: str, kafka: str) -> None:
    with forks(url, kafka, "app") as process:
        assert ended(process, Step.DATABASE_COMMITTED.name, 1) == KILLED
        assert ended(process, NO_STEP, 0, "badly") == 0
    assert in_log(kafka) == [] and len(in_database(url)) == 1


class Surroundings:
    """PostgreSQL, a broker and two processes, each of which may be killed, and starts again."""

    def __init__(self, place: Path, postgres: PostgresServer) -> None:
        self._place = place
        self._postgres = postgres
        self.url = postgres.url()
        make_tables(self.url)
        self.kafka = f"127.0.0.1:{free_port()}"
        self.broker = served(place, self.kafka)
        with Client(self.kafka) as client:
            client.create_topic(TOPIC, partitions=2)
        self.processes = [self._started(number) for number in range(2)]

    def _started(self, number: int) -> "subprocess.Popen[bytes]":
        with (self._place / "processes.log").open("ab") as log:
            return subprocess.Popen(
                [*PROCESS, self.url, self.kafka, f"app-{number}"], stdout=subprocess.DEVNULL, stderr=log
            )

    def until_more_is_written(self) -> None:
        """A process may have ended by an error: then it starts again, as a supervisor does it."""
        before = in_database(self.url)
        while in_database(self.url) == before:
            time.sleep(0.02)
            for number, process in enumerate(self.processes):
                if process.poll() is not None:
                    self.processes[number] = self._started(number)

    def kill_one(self, randomness: random.Random) -> None:
        what = randomness.choice(["process", "process", "broker", "postgres"])
        if what == "process":
            number = randomness.randrange(len(self.processes))
            self._end(self.processes[number])
            self.processes[number] = self._started(number)
        elif what == "broker":
            self.broker.kill()
            self.broker = served(self._place, self.kafka)
        else:
            self._postgres.kill()
            self._postgres.start()

    @staticmethod
    def _end(process: "subprocess.Popen[bytes]") -> None:
        process.kill()
        process.wait()

    def recover(self) -> None:
        for process in self.processes:
            self._end(process)
        for number in range(len(self.processes)):
            with TwoPhase(self.kafka, f"app-{number}", lambda: psycopg.connect(self.url)) as two_phase:
                two_phase.recover()

    def stop(self) -> None:
        for process in self.processes:
            self._end(process)
        self.broker.kill()


@pytest.mark.timeout(120 + 15 * KILLS)
def test_everything_is_killed_at_random(tmp_path: Path) -> None:
    need_postgres()
    randomness = random.Random(os.environ.get("POSTHOUSE_SEED", "17"))
    with running_server() as postgres:
        surroundings = Surroundings(tmp_path, postgres)
        try:
            for _ in range(KILLS):
                surroundings.until_more_is_written()
                time.sleep(randomness.random() * 0.05)  # any moment of the next transactions
                surroundings.kill_one(randomness)
            surroundings.until_more_is_written()
            surroundings.recover()
            found = in_database(surroundings.url)
            assert len(found) >= KILLS
            assert in_log(surroundings.kafka) == found
        finally:
            surroundings.stop()
