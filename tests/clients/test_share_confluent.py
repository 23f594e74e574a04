"""Share groups with librdkafka's ShareConsumer."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from posthouse.testing import running_broker
from tests.stored import stored_in

pytestmark = pytest.mark.skipif(
    not hasattr(confluent_kafka, "ShareConsumer"),
    reason=f"confluent-kafka {confluent_kafka.version()} has no ShareConsumer; 2.16 has",
)

PARTITIONS = 4
QUIET = {"log_level": 0}

Join = Callable[..., Any]


@contextlib.contextmanager
def joining(kafka: str, topic: str) -> Iterator[Join]:
    opened: list[Any] = []

    def join(**config: Any) -> Any:
        settings = {"bootstrap.servers": kafka, "group.id": f"shares-of-{topic}", **QUIET, **config}
        consumer = confluent_kafka.ShareConsumer(settings)
        consumer.subscribe([topic])
        opened.append(consumer)
        return consumer

    yield join
    for consumer in opened:
        with contextlib.suppress(confluent_kafka.IllegalStateException):
            consumer.close()


@pytest.fixture
def filled(kafka: str, topic: str) -> str:
    fill(kafka, topic)
    return topic


@pytest.fixture
def join(kafka: str, filled: str) -> Iterator[Join]:
    with joining(kafka, filled) as join:
        yield join


def fill(kafka: str, topic: str, count: int = 200) -> None:
    """A topic with records, and a group that begins with the first of them."""
    admin = AdminClient({"bootstrap.servers": kafka, **QUIET})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, f"shares-of-{topic}", incremental_configs=[earliest])
    admin.incremental_alter_configs([group])[group].result(30)
    produce(kafka, topic, range(count))


def produce(kafka: str, topic: str, numbers: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka, **QUIET})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def polled(consumer: Any, count: int, seconds: float = 20) -> list[Any]:
    """At least `count` messages, if they come in time."""
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.poll(0.2):
            assert message.error() is None
            found.append(message)
    return found


def numbers(messages: list[Any]) -> list[int]:
    return sorted(int(message.value()) for message in messages)


def test_every_record_comes_once(join: Join) -> None:
    consumer = join()
    assert numbers(polled(consumer, 200)) == list(range(200))
    consumer.commit_sync()
    assert polled(consumer, 1, 1) == []


def test_consumers_share_the_work(join: Join, kafka: str, filled: str) -> None:
    consumers = [join(), join(), join()]
    shares: list[list[Any]] = [[] for _ in consumers]
    stop = threading.Event()

    def work(consumer: Any, share: list[Any]) -> None:
        while not stop.is_set():
            share += [message for message in consumer.poll(0.1) if message.error() is None]
            time.sleep(0.01)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(consumers, shares, strict=True)]
    for thread in threads:
        thread.start()
    for start in range(200, 2000, 100):
        produce(kafka, filled, range(start, start + 100))
    deadline = time.monotonic() + 60
    while sum(map(len, shares)) < 2000 and time.monotonic() < deadline:
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    seen = Counter(number for share in shares for number in numbers(share))
    assert seen == Counter(range(2000))
    assert sum(1 for share in shares if share) > 1


def test_release_and_reject(join: Join) -> None:
    consumer = join(**{"share.acknowledgement.mode": "explicit"})
    kinds = confluent_kafka.AcknowledgeType
    deliveries: Counter[int] = Counter()
    seen = 0
    deadline = time.monotonic() + 30
    # Every tenth is released once, every tenth + 1 rejected, the rest accepted.
    while seen < 220 and time.monotonic() < deadline:
        for message in consumer.poll(0.2):
            number = int(message.value())
            seen += 1
            deliveries[number] += 1
            assert message.delivery_count() == deliveries[number]
            verdict = kinds.ACCEPT
            if number % 10 == 0 and deliveries[number] == 1:
                verdict = kinds.RELEASE
            elif number % 10 == 1:
                verdict = kinds.REJECT
            consumer.acknowledge(message, verdict)
        consumer.commit_sync()
    assert deliveries == Counter({number: 2 if number % 10 == 0 else 1 for number in range(200)})
    assert polled(consumer, 1, 1) == []


def test_who_leaves_gives_back_what_it_did_not_accept(join: Join) -> None:
    leaving = join(**{"share.acknowledgement.mode": "explicit"})
    held = polled(leaving, 1)
    assert held
    leaving.acknowledge(held[0], confluent_kafka.AcknowledgeType.ACCEPT)
    for message in held[1:]:
        leaving.acknowledge(message, confluent_kafka.AcknowledgeType.RELEASE)
    leaving.close()
    rest = polled(join(), 199)
    assert numbers(rest) == sorted(set(range(200)) - {int(held[0].value())})


def test_progress_survives_a_restart(tmp_path: Path) -> None:
    with running_broker(**stored_in(tmp_path)) as broker:
        fill(broker.kafka, "t")
        with joining(broker.kafka, "t") as join:
            consumer = join(**{"max.poll.records": 50})
            first = polled(consumer, 50)
            consumer.commit_sync()
            consumer.close()
    with running_broker(**stored_in(tmp_path)) as broker, joining(broker.kafka, "t") as join:
        consumer = join()
        rest = polled(consumer, 200 - len(first))
        assert numbers(first + rest) == list(range(200))
        assert polled(consumer, 1, 1) == []
