"""A group moves from the classic protocol to the new one and back, one member at a time, without a pause."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
QUIET = {"log_level": 0}
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
KINDS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range", **CLASSIC},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky", **CLASSIC},
    "consumer": {"group.protocol": "consumer"},
}


class Group:
    def __init__(self, kafka: str, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        self.members: list[Consumer] = []
        self.seen = Counter[int]()
        self.sent = 0
        self.admin = AdminClient({"bootstrap.servers": kafka, **QUIET})
        self.admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        self.producer = Producer({"bootstrap.servers": kafka, **QUIET})

    def join(self, kind: str) -> Consumer:
        config = {
            "bootstrap.servers": self.kafka,
            "group.id": f"group-of-{self.topic}",
            **QUIET,
            **KINDS[kind],
        }
        consumer = Consumer(config | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([self.topic])
        self.members.append(consumer)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        self.members.remove(consumer)
        consumer.close()

    def settle(self) -> None:
        """Everybody has its share; what is sent to each partition then, arrives."""
        share = PARTITIONS // len(self.members)
        self._until(lambda: all(len(each.assignment()) == share for each in self.members))
        for partition in range(PARTITIONS):
            self.producer.produce(self.topic, b"%d" % self.sent, partition=partition)
            self.sent += 1
        assert self.producer.flush(30) == 0
        self._until(lambda: len(self.seen) == self.sent)

    def _until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not done():
            assert time.monotonic() < deadline, [each.assignment() for each in self.members]
            for consumer in self.members:
                messages = consumer.consume(100, 0.05)
                for message in messages:
                    assert message.error() is None, message.error()
                    self.seen[int(message.value() or b"")] += 1
                if messages:
                    consumer.commit(asynchronous=False)

    def kind(self) -> str:
        found = self.admin.list_consumer_groups().result(30).valid
        [kind] = [each.type.name for each in found if each.group_id == f"group-of-{self.topic}"]
        return str(kind)


@pytest.mark.parametrize("classic", ["range", "cooperative-sticky"])
def test_there_and_back(kafka: str, topic: str, classic: str) -> None:
    group = Group(kafka, topic)
    first, second = group.join(classic), group.join(classic)
    group.settle()
    assert group.kind() == "CLASSIC"
    group.leave(second)
    third = group.join("consumer")
    group.settle()
    assert group.kind() == "CONSUMER"
    group.leave(first)
    fourth = group.join("consumer")
    group.settle()
    group.leave(third)
    fifth = group.join(classic)
    group.settle()
    group.leave(fourth)
    group.settle()
    assert group.kind() == "CLASSIC"
    group.leave(fifth)
    assert group.seen == Counter(range(group.sent)), "everything once, because nobody was read from twice"
