"""Dramatiq on its RabbitMQ broker: workers in this process, as its users test them."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dramatiq
import pika
import pytest
from dramatiq import Worker
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import AgeLimit, Callbacks, CurrentMessage, Pipelines, Retries
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend

from posthouse.settings import Address
from posthouse.testing import running_broker
from tests.clients.amqp.rabbit import Rabbit

SECONDS = 60.0


class Seen(list[Any]):
    """What actors were called with; a test waits until there is enough."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def add(self, value: Any) -> int:
        with self._changed:
            self.append(value)
            self._changed.notify_all()
            return len(self)

    def has(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self) >= count, SECONDS), f"only {self} came"


def broker_at(url: str) -> RabbitmqBroker:
    middleware = [
        AgeLimit(),
        Callbacks(),
        Pipelines(),
        Retries(min_backoff=10, max_backoff=50),
        CurrentMessage(),
        Results(backend=StubBackend(), store_results=True),  # type: ignore[no-untyped-call]
    ]
    return RabbitmqBroker(url=url, middleware=middleware, confirm_delivery=True)


@pytest.fixture
def broker(rabbit: Rabbit) -> Iterator[RabbitmqBroker]:
    made = broker_at(rabbit.url)
    dramatiq.set_broker(made)  # where results are asked for
    yield made
    made.close()


@pytest.fixture
def work(broker: RabbitmqBroker) -> Iterator[Callable[[], Worker]]:
    """Starts a worker for all actors that there are."""
    started: list[Worker] = []

    def start() -> Worker:
        worker = Worker(broker, worker_timeout=50, worker_threads=2)
        worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.stop()


def ready(rabbit: Rabbit, queue: str) -> int:
    connection = pika.BlockingConnection(pika.URLParameters(rabbit.url))
    count: int = connection.channel().queue_declare(queue, passive=True).method.message_count
    connection.close()
    return count


def test_work_and_results(broker: RabbitmqBroker, name: str, work: Callable[[], Worker]) -> None:
    @dramatiq.actor(broker=broker, queue_name=name)
    def add(a: int, b: int) -> int:
        return a + b

    messages = [add.send(number, 1) for number in range(20)]
    work()
    assert [message.get_result(block=True, timeout=20_000) for message in messages] == list(range(1, 21))
    broker.join(name, timeout=20_000)
    more = [add.message_with_options(args=(number,)) for number in (3, 4)]
    pipe = add.message(1, 2) | more[0] | more[1]
    assert pipe.run().get_result(block=True, timeout=20_000) == 10


def test_delays(broker: RabbitmqBroker, name: str, work: Callable[[], Worker]) -> None:
    """A delayed message waits in a queue of its own, and comes when it is due."""
    seen = Seen()

    @dramatiq.actor(broker=broker, queue_name=name)
    def note(value: str) -> None:
        seen.add((value, time.time()))

    work()
    sent = time.time()
    note.send_with_options(args=("later",), delay=600)
    note.send("now")
    seen.has(2)
    (first, _), (second, at) = seen
    assert (first, second) == ("now", "later")
    assert at - sent >= 0.6


def test_retries_and_dead_letters(
    rabbit: Rabbit, broker: RabbitmqBroker, name: str, work: Callable[[], Worker]
) -> None:
    attempts = Seen()
    failed = Seen()

    @dramatiq.actor(broker=broker, queue_name=name)
    def sorry(message: dict[str, Any], retries: dict[str, Any]) -> None:
        failed.add((message["args"], retries["max_retries"]))

    @dramatiq.actor(broker=broker, queue_name=name, max_retries=3, on_retry_exhausted=sorry.actor_name)
    def flaky(works_at: int) -> int:
        if attempts.add(works_at) < works_at:
            raise ValueError("not yet")
        return len(attempts)

    work()
    assert flaky.send(3).get_result(block=True, timeout=20_000) == 3
    attempts.clear()
    flaky.send(100)
    failed.has(1)
    assert (list(attempts), list(failed)) == ([100] * 4, [([100], 3)])
    broker.join(name, timeout=20_000)
    until = time.monotonic() + SECONDS
    while ready(rabbit, f"{name}.XQ") < 1:
        assert time.monotonic() < until, "no dead letter"
        time.sleep(0.02)
    assert (ready(rabbit, name), ready(rabbit, f"{name}.DQ")) == (0, 0)


def test_messages_of_a_worker_that_stops_are_done_by_another(
    broker: RabbitmqBroker, name: str, work: Callable[[], Worker]
) -> None:
    seen = Seen()
    go_on = threading.Event()

    @dramatiq.actor(broker=broker, queue_name=name)
    def slow(number: int) -> None:
        seen.add(number)
        if number == 0:
            assert go_on.wait(SECONDS)

    for number in range(30):
        slow.send(number)
    worker = work()
    seen.has(1)
    threading.Timer(0.05, go_on.set).start()
    worker.stop()  # gives back what it has prefetched
    work()
    seen.has(30)
    assert set(seen) == set(range(30))


def test_going_on_after_a_restart_of_the_broker(tmp_path: Path, name: str) -> None:
    """Messages and the dead-letter queues survive; the worker reconnects by itself."""
    seen = Seen()
    with running_broker(data=tmp_path, amqp=Address("127.0.0.1", 0)) as running:
        rabbit = Rabbit(address=running.amqp, kafka=None)
        broker = broker_at(rabbit.url)

        @dramatiq.actor(broker=broker, queue_name=name)
        def note(value: int) -> None:
            seen.add(value)

        worker = Worker(broker, worker_timeout=50, worker_threads=1)
        worker.start()
        note.send(1)
        note.send_with_options(args=(2,), delay=1500)
        seen.has(1)
        broker.join(name, timeout=20_000)
    with running_broker(data=tmp_path, amqp=Address(rabbit.host, rabbit.port)):
        seen.has(2)
        note.send(3)
        seen.has(3)
        worker.stop()
        broker.close()
    assert list(seen) == [1, 2, 3]
