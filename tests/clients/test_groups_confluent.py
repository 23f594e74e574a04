"""Consumer groups with librdkafka: both protocols, all assignors, restarts and static members."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from posthouse.testing import running_broker
from tests.stored import stored_in

PARTITIONS = 4
QUIET = {"log_level": 0}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range"},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    chosen = PROTOCOLS[request.param]
    return chosen if "group.protocol" in chosen else chosen | CLASSIC


@pytest.fixture
def filled(kafka: str, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": kafka, **QUIET})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    produce(kafka, topic, range(100))
    return topic


def produce(kafka: str, topic: str, numbers: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka, **QUIET})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(30) == 0


Join = Callable[..., Consumer]


@pytest.fixture
def join(kafka: str, filled: str, protocol: dict[str, Any]) -> Iterator[Join]:
    opened: list[Consumer] = []

    def start(**config: Any) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": f"group-of-{filled}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **QUIET,
                **protocol,
                **config,
            }
        )
        consumer.subscribe([filled])
        opened.append(consumer)
        return consumer

    yield start
    for consumer in opened:
        consumer.close()


def until(consumers: list[Consumer], done: Callable[[], bool], seen: Counter[int]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, [consumer.assignment() for consumer in consumers]
        for consumer in consumers:
            for message in consumer.consume(100, 0.05):
                assert message.error() is None, message.error()
                seen[int(message.value() or b"")] += 1


def share(consumer: Consumer) -> set[int]:
    return {each.partition for each in consumer.assignment()}


def test_two_members_share(join: Join) -> None:
    first, second = join(), join()
    both, seen = [first, second], Counter[int]()
    until(both, lambda: len(share(first)) == len(share(second)) == 2, seen)
    assert share(first) | share(second) == set(range(PARTITIONS))
    second.close()
    until([first], lambda: len(share(first)) == PARTITIONS, seen)


def test_commit_and_resume(kafka: str, filled: str, join: Join) -> None:
    first, seen = join(), Counter[int]()
    until([first], lambda: len(seen) == 100, seen)
    first.commit(
        offsets=[TopicPartition(filled, index, 20, metadata=f"note {index}") for index in range(PARTITIONS)],
        asynchronous=False,
    )
    first.close()
    second, again = join(), Counter[int]()
    until([second], lambda: len(again) == 20, again)
    assert set(again) == set(range(80, 100))
    committed = second.committed([TopicPartition(filled, index) for index in range(PARTITIONS)], 30)
    assert [(each.offset, each.metadata) for each in committed] == [
        (20, f"note {index}") for index in range(4)
    ]


def test_a_static_member_restarts(join: Join) -> None:
    first, second, seen = (
        join(**{"group.instance.id": "one"}),
        join(**{"group.instance.id": "two"}),
        Counter[int](),
    )
    until([first, second], lambda: len(share(first)) == len(share(second)) == 2, seen)
    kept, untouched = share(first), share(second)
    first.close()
    again = join(**{"group.instance.id": "one"})
    until([again, second], lambda: share(again) == kept, seen)
    assert share(second) == untouched


def test_groups_as_tools_see_them(kafka: str, filled: str, join: Join, protocol: dict[str, Any]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka, **QUIET})
    group = f"group-of-{filled}"
    consumer, seen = join(), Counter[int]()
    until([consumer], lambda: len(seen) == 100, seen)
    consumer.commit(asynchronous=False)
    described = admin.describe_consumer_groups([group])[group].result(30)
    assert described.state is ConsumerGroupState.STABLE
    [member] = described.members
    assert {each.partition for each in member.assignment.topic_partitions} == set(range(PARTITIONS))
    assert member.host == "/127.0.0.1"
    assert group in {each.group_id for each in admin.list_consumer_groups().result(30).valid}
    consumer.close()
    admin.delete_consumer_groups([group])[group].result(30)
    assert group not in {each.group_id for each in admin.list_consumer_groups().result(30).valid}


@pytest.mark.parametrize("protocol", ["range", "consumer"], indirect=True)
def test_a_pattern(kafka: str, filled: str, protocol: dict[str, Any]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": f"pattern-of-{filled}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            **QUIET,
            **protocol,
        }
    )
    consumer.subscribe([f"^{filled}(-more)?"])
    seen = Counter[int]()
    until([consumer], lambda: len(seen) == 100, seen)
    admin = AdminClient({"bootstrap.servers": kafka, **QUIET})
    admin.create_topics([NewTopic(f"{filled}-more", PARTITIONS, 1)])[f"{filled}-more"].result(30)
    produce(kafka, f"{filled}-more", range(100, 104))
    until([consumer], lambda: len(seen) == 104, seen)
    consumer.close()


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "consumer"], indirect=True)
def test_the_broker_restarts(tmp_path: Any, protocol: dict[str, Any]) -> None:
    """Members notice, join again, and go on from what they committed."""
    with running_broker(**stored_in(tmp_path)) as broker:
        kafka, port = broker.kafka, broker.broker.app.listeners["kafka"]
        admin = AdminClient({"bootstrap.servers": kafka, **QUIET})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
        produce(kafka, "t", range(40))
        consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                **QUIET,
                **protocol,
            }
        )
        consumer.subscribe(["t"])
        seen = Counter[int]()
        until([consumer], lambda: len(seen) == 40, seen)
        consumer.commit(asynchronous=False)
    with running_broker(**stored_in(tmp_path), kafka=port):
        produce(kafka, "t", range(40, 80))
        until([consumer], lambda: len(seen) == 80, seen)
        consumer.close()
    assert set(seen.values()) == {1}
