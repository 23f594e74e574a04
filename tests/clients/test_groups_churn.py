"""A group whose members come, go, are killed and fall asleep: every record is read, no commit goes back."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from posthouse.testing import ThreadBroker, running_broker
from tests.stored import stored_in

PARTITIONS = 6
CHURN_SECONDS = 3.5
SESSION_MS = 1000
MEMBER = Path(__file__).with_name("churn_member.py")
QUIET = {"log_level": 0}
GOING = {"leave": signal.SIGTERM, "kill": signal.SIGKILL, "sleep": signal.SIGSTOP}
CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 100}
KINDS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range", **CLASSIC},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky", **CLASSIC},
    "consumer": {"group.protocol": "consumer"},
}
GROUPS = {kind: [kind] for kind in KINDS} | {"mixed": ["cooperative-sticky", "consumer"]}
"""The kinds of members in each group, in turns."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadBroker]:
    with running_broker(
        **stored_in(tmp_path / "data"),
        group_min_session_ms=500,
        group_session_ms=SESSION_MS,
        group_heartbeat_ms=100,
    ) as running:
        yield running


class Members:
    """The processes, and what becomes of them."""

    def __init__(self, kafka: str, logs: Path, kinds: list[str]) -> None:
        self._logs = logs
        self._kinds = kinds
        self._config = {
            "bootstrap.servers": kafka,
            "group.id": "churn",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
        self._running: list[subprocess.Popen[bytes]] = []
        self._asleep: list[subprocess.Popen[bytes]] = []
        self._number = 0

    def come(self) -> None:
        log = self._logs / f"{self._number}.log"
        self._number += 1
        config = self._config | KINDS[self._kinds[self._number % len(self._kinds)]]
        arguments = [sys.executable, str(MEMBER), "t", str(log), json.dumps(config)]
        self._running.append(subprocess.Popen(arguments))

    def go(self, number: signal.Signals) -> None:
        member = self._running.pop(0)
        member.send_signal(number)
        if number is signal.SIGSTOP:
            self._asleep.append(member)
        else:
            member.wait(20)

    def wake(self) -> None:
        for member in self._asleep:
            member.send_signal(signal.SIGCONT)
        self._running += self._asleep
        self._asleep.clear()

    def churn(self, chance: random.Random) -> None:
        act = chance.choice(["come", "come", *GOING, "wake"])
        if act == "wake":
            self.wake()
        elif act == "come":
            if len(self._running) < 4:
                self.come()
        elif len(self._running) > 1:
            self.go(GOING[act])

    def end(self) -> None:
        self.wake()
        for member in self._running:
            member.kill()
            member.wait(20)

    def noted(self) -> list[list[tuple[str, int, int]]]:
        """What each member wrote down."""
        found = []
        for log in sorted(self._logs.iterdir()):
            lines = [line.split() for line in log.read_text().splitlines()]
            found.append([(kind, int(partition), int(offset)) for kind, partition, offset in lines])
        return found


def committed(observer: Consumer) -> list[int]:
    places = observer.committed([TopicPartition("t", index) for index in range(PARTITIONS)], 30)
    return [max(0, place.offset) for place in places]


def produce_some(producer: Producer, ends: list[int], chance: random.Random) -> None:
    for _ in range(30):
        partition = chance.randrange(PARTITIONS)
        producer.produce("t", b"%d" % ends[partition], partition=partition)
        ends[partition] += 1
    assert producer.flush(30) == 0


@pytest.mark.parametrize("group", GROUPS)
def test_every_record_is_read(broker: ThreadBroker, tmp_path: Path, group: str) -> None:
    kafka, chance = broker.kafka, random.Random(group)
    admin = AdminClient({"bootstrap.servers": kafka, **QUIET})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
    producer = Producer({"bootstrap.servers": kafka, **QUIET})
    observer = Consumer({"bootstrap.servers": kafka, "group.id": "churn", **QUIET})
    logs = tmp_path / "logs"
    logs.mkdir()
    members = Members(kafka, logs, GROUPS[group])
    ends, history = [0] * PARTITIONS, [[0] * PARTITIONS]
    try:
        members.come()
        members.come()
        until = time.monotonic() + CHURN_SECONDS
        while time.monotonic() < until:
            produce_some(producer, ends, chance)
            time.sleep(0.25)
            members.churn(chance)
            history.append(committed(observer))
        members.wake()
        until = time.monotonic() + 60
        while history[-1] != ends:
            assert time.monotonic() < until, f"stuck at {history[-1]} of {ends}"
            history.append(committed(observer))
            time.sleep(0.05)
    finally:
        members.end()
        observer.close()
    check(history, members.noted(), ends)


def check(history: list[list[int]], noted: list[list[tuple[str, int, int]]], ends: list[int]) -> None:
    for before, after in pairwise(history):
        assert all(old <= new for old, new in zip(before, after, strict=True)), "a commit went back"
    read: defaultdict[int, set[int]] = defaultdict(set)
    for notes in noted:
        own: defaultdict[int, set[int]] = defaultdict(set)
        for kind, partition, offset in notes:
            if kind == "D":
                read[partition].add(offset)
                own[partition].add(offset)
            else:
                assert offset - 1 in own[partition], "a member committed what it had not read"
    assert {partition: len(offsets) for partition, offsets in read.items()} == dict(enumerate(ends))
