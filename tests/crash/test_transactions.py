"""Read, process, write, with transactions, while the broker and the programs are killed: every input is in
the output exactly once.

For the checker an order that came into the source is sent to the target, once, by whoever processes it. So an
order that is missing there is a lost write, and one that was processed twice is a duplicate.
"""

import socket
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.checker.history import Assign, Fault, FinalRead, Outcome, Partition, Poll, Send
from tests.checker.judge import check
from tests.checker.report import Kind
from tests.crash.loads import Recorder
from tests.crash.orders import check_orders
from tests.crash.processor import SOURCE, TARGET
from tests.crash.served import broker as running
from tests.crash.stream_load import PARTITIONS, create_topics, place_of, read_everything, settings, taken

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


class Input:
    """More orders for every round; also while the broker comes and goes."""

    def __init__(self, bootstrap: str, source: Recorder, target: Recorder) -> None:
        self._producer = Producer(settings(bootstrap) | {"enable.idempotence": True})
        self._source, self._target = source, target
        self._process = source.number()
        self.count = 0

    def add(self, count: int) -> None:
        for value in range(self.count, self.count + count):
            told = partial(self._told, self._source.now(), value)
            self._producer.produce(SOURCE, str(value), partition=value % PARTITIONS, callback=told)
        assert self._producer.flush(30) == 0
        self.count += count

    def _told(self, invoked: int, value: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        (_, index), offset = place_of(message)
        now = self._source.now()
        self._source.add(Send(self._process, invoked, now, (SOURCE, index), value, Outcome.OK, offset))
        self._target.add(Send(self._process, invoked, now, (TARGET, index), value, Outcome.OK, None))


class Output:
    """Reads what is committed, as it comes."""

    def __init__(self, bootstrap: str, target: Recorder) -> None:
        self._consumer = Consumer(settings(bootstrap) | {"group.id": "output"})
        self._target = target
        self._process = target.number()
        starts: dict[Partition, int | None] = {(TARGET, index): 0 for index in range(PARTITIONS)}
        target.add(Assign(self._process, target.now(), starts))
        self._consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in starts])
        self._count = 0

    def wait_for(self, count: int) -> None:
        while self._count < count:
            invoked = self._target.now()
            messages = [each for each in self._consumer.consume(1000, 0.1) if each.error() is None]
            if messages:
                read = [taken(message) for message in messages]
                self._target.add(Poll(self._process, invoked, self._target.now(), True, read))
                self._count += len(read)

    def close(self) -> None:
        self._consumer.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.timeout(300)
def test_every_input_is_in_the_output_once(tmp_path: Path) -> None:
    random = Random(1968)
    port = free_port()
    source, target = Recorder(), Recorder()
    with ExitStack() as stack:
        broker = stack.enter_context(running(tmp_path, port))
        create_topics(broker.bootstrap, SOURCE, TARGET)
        orders, output = Input(broker.bootstrap, source, target), Output(broker.bootstrap, target)
        processors = stack.enter_context(Processors(broker.bootstrap))
        for number in range(ROUNDS):
            done = orders.count
            orders.add(ORDERS)
            output.wait_for(done + random.randrange(1, ORDERS))
            if number % 2:
                target.add(Fault(target.now(), "kill of a processor"))
                processors.replace(random.choice(NAMES))
            else:
                target.add(Fault(target.now(), "kill"))
                broker.kill()
                broker = stack.enter_context(running(tmp_path, port))
        output.wait_for(orders.count)
        processors.kill()
        output.close()
        source.add(*read_everything(broker.bootstrap, SOURCE))
        target.add(*read_everything(broker.bootstrap, TARGET))
    for recorder in (source, target):
        assert check(recorder.history).anomalies == []
        assert check_orders(recorder.history) == []


def test_an_order_that_is_processed_twice_or_never_is_found() -> None:
    place = (TARGET, 0)
    orders = [Send(1, value, value, place, value, Outcome.OK, None) for value in (1, 2, 3)]
    twice = FinalRead(place, True, 0, 6, [(0, 1), (2, 1), (3, 2), (4, 3)])
    assert check([*orders, twice]).kinds == {Kind.DUPLICATE}
    never = FinalRead(place, True, 0, 3, [(0, 1), (1, 3)])
    assert check([*orders, never]).kinds == {Kind.LOST_WRITE}
