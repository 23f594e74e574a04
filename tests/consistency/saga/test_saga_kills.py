"""Runners and the broker are killed at random: every saga ends once, and as its steps say."""

import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from posthouse.client import Client
from posthouse.client.admin_client import AdminClient
from posthouse.client.errors import ClientError
from posthouse.consistency.saga import SagaClient
from posthouse.consistency.saga.topics import create_topics
from tests.consistency.relays import values
from tests.consistency.saga.saga_process import PARTITIONS, STEPS, expected, outcome
from tests.postgres import free_port
from tests.served import ServedBroker

KILLS = int(os.environ.get("POSTHOUSE_KILLS", "6"))
SAGAS_A_KILL = 8
DEADLINE = 120.0


def persistently(call: Any) -> Any:
    """Over the death of the broker."""
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            return call()
        except ClientError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.mark.timeout(1800)
def test_every_saga_ends_once(tmp_path: Path) -> None:
    path = str(tmp_path / "services.db")
    kafka, admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE calls (id text, step text, what text)")
        connection.execute("CREATE TABLE effects (key text PRIMARY KEY, id text, what text)")

    def served() -> ServedBroker:
        # Otherwise the group waits 45 s for a member that was killed.
        return ServedBroker(tmp_path / "data", kafka=kafka, admin=admin, amqp="off", group_session_ms=5000)

    def runner() -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.consistency.saga.saga_process", kafka, admin, path]
        with (tmp_path / "runners.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    broker = served()
    with Client(kafka) as client:
        create_topics(client, "order", PARTITIONS)
        for topic in ("told", "asked"):
            client.create_topic(topic, partitions=2)
    randomness = random.Random(11)
    runners = [runner() for _ in range(2)]
    ids: list[str] = []

    def ended() -> dict[str, str]:
        with AdminClient(admin) as asking:
            found = asking.items("/v1/sagas/order")
            return {each["id"]: each["status"] for each in found}

    def reply() -> None:
        """To all that wait: as often as somebody looks."""
        with AdminClient(admin) as asking, SagaClient("order", kafka=kafka) as sagas:
            for each in asking.items("/v1/sagas/order", status="waiting"):
                sagas.reply(each["id"], each["step"], "replied")

    def calls() -> int:
        with sqlite3.connect(path, timeout=60) as connection:
            [[count]] = connection.execute("SELECT count(*) FROM calls").fetchall()
        return int(count)

    try:
        for kill in range(KILLS):
            new = [f"saga-{kill}-{number}" for number in range(SAGAS_A_KILL)]
            for id in new:
                persistently(lambda: _start(kafka, id))  # noqa: B023 - it is called here only
            ids += new
            wanted = calls() + randomness.randrange(1, 2 * SAGAS_A_KILL)
            deadline = time.monotonic() + DEADLINE
            while calls() < wanted:
                persistently(reply)
                assert time.monotonic() < deadline, "the runners stand still"
                time.sleep(0.02)
            if kill % 3 == 2:
                broker.kill()
                broker = served()
            else:
                killed = randomness.randrange(2)
                runners[killed].kill()
                runners[killed].wait()
                runners[killed] = runner()
        deadline = time.monotonic() + DEADLINE
        while not set(persistently(ended).values()) <= {"completed", "compensated"}:
            persistently(reply)
            assert time.monotonic() < deadline, persistently(ended)
            time.sleep(0.05)
        assert ended() == {id: expected(id) for id in ids}
        with Client(kafka) as client:
            told = values(client, "told")
    finally:
        for each in runners:
            each.kill()
            each.wait()
        with suppress(ProcessLookupError):
            broker.kill()
    assert len(told) == len(set(told)), "messages of steps come once"
    with sqlite3.connect(path) as connection:
        effects = connection.execute("SELECT key, what FROM effects").fetchall()
        order = connection.execute("SELECT id, step, what FROM calls ORDER BY rowid").fetchall()
    for id in ids:
        _judge(id, dict(effects), [(step, what) for each, step, what in order if each == id], told)


def _start(kafka: str, id: str) -> None:
    with SagaClient("order", kafka=kafka) as sagas:
        sagas.start(id, id)


def _judge(id: str, effects: dict[str, str], calls: list[tuple[str, str]], told: list[str]) -> None:
    done: list[str] = []
    undone: list[str] = []
    for step in STEPS:
        kind = outcome(id, step)
        if kind == "refused":
            break
        done.append(step)
        if kind == "broken":
            break
    if expected(id) == "compensated":
        undone = list(reversed(done))
    first_calls = list(dict.fromkeys(calls))
    assert first_calls == [*((step, "act") for step in done), *((step, "undo") for step in undone)]
    for step in done:
        assert effects[f"order/{id}/{step}"] == "act"
    for step in undone:
        assert effects[f"order/{id}/{step}/compensate"] == "undo"
    sent = [step for step in done if outcome(id, step) != "broken"]
    assert [each for each in told if each.startswith(f"{id} ")] == [f"{id} {step}" for step in sent]
