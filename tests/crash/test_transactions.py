"""Read, process, write, with transactions, while the broker and the programs are killed: every input is in
the output exactly once."""

import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.processor import SOURCE, TARGET
from tests.crash.workload import broker as running

PARTITIONS = 3
ROUNDS = 10
ORDERS = 500
"""In every round."""
NAMES = ("first", "second")


class Processors:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._running = {name: self._started(name) for name in NAMES}

    def _started(self, name: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "tests.crash.processor", self._bootstrap, name]
        return subprocess.Popen(command, cwd=Path(__file__).parents[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self, *names: str) -> None:
        for name in names or NAMES:
            self._running[name].kill()
            self._running[name].wait()

    def replace(self, name: str) -> None:
        self.kill(name)
        self._running[name] = self._started(name)


class Output:
    """Reads what is committed, as it comes."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "output", "log_level": 0}
            | {"reconnect.backoff.max.ms": 200, "fetch.wait.max.ms": 20}
        )
        self._consumer.assign(
            [TopicPartition(TARGET, index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
        )
        self.values: Counter[bytes] = Counter()

    def wait_for(self, count: int) -> None:
        while self.values.total() < count:
            self._take(0.1)

    def drain(self) -> None:
        """Until nothing has come for a while."""
        while self._take(2):
            pass
        self._consumer.close()

    def _take(self, seconds: float) -> int:
        messages = [each for each in self._consumer.consume(1000, seconds) if each.error() is None]
        for message in messages:
            value = message.value()
            assert isinstance(value, bytes)
            self.values[value] += 1
        return len(messages)


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    created = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (SOURCE, TARGET)])
    for each in created.values():
        each.result(30)


class Input:
    """More orders for every round; also while the broker comes and goes."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True}
        self._producer = Producer(settings)
        self.values: list[bytes] = []

    def add(self, count: int) -> None:
        for number in range(len(self.values), len(self.values) + count):
            self.values.append(b"order %d" % number)
            self._producer.produce(SOURCE, self.values[-1], partition=number % PARTITIONS)
        assert self._producer.flush(30) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.timeout(300)
def test_every_input_is_in_the_output_once(tmp_path: Path) -> None:
    random = Random(1968)
    port = free_port()
    with ExitStack() as stack:
        broker = stack.enter_context(running(tmp_path, port))
        create_topics(broker.bootstrap)
        orders, output = Input(broker.bootstrap), Output(broker.bootstrap)
        processors = stack.enter_context(Processors(broker.bootstrap))
        for number in range(ROUNDS):
            done = len(orders.values)
            orders.add(ORDERS)
            output.wait_for(done + random.randrange(1, ORDERS))
            if number % 2:
                processors.replace(random.choice(NAMES))
            else:
                broker.kill()
                broker = stack.enter_context(running(tmp_path, port))
        output.wait_for(len(orders.values))
        processors.kill()
        output.drain()
        assert output.values == Counter(orders.values)
        again = Output(broker.bootstrap)
        again.drain()
        assert again.values == Counter(orders.values), "also for somebody who reads it all at once"
