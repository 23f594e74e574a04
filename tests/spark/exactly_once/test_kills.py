"""Topic to topic through Spark, with kill -9 of everybody: every order comes out once.

`make test-long` kills an executor, a Python worker and the broker in one round; `make torture-spark` kills
one after the other, the driver and the archiver too, twenty times and more (POSTHOUSE_KILLS).
"""

import os
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from posthouse.client import Client, Message
from posthouse.spark.archive.reading import ArchivePlan, ArchiveRange
from posthouse.spark.schema import arrow_schema, source_schema
from tests.spark.exactly_once.outcome import check_passed, check_totals
from tests.spark.exactly_once.victims import Archiver, Broker, Driver, send_kill

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark-cluster")]

SEED = int(os.environ.get("POSTHOUSE_SEED", "1"))
VICTIMS = ("driver", "executor", "broker", "worker", "archiver")
# A round lasts most of a minute, until everything works again; so in `make test-long` there is one, in which
# some die at the same time. What follows the death of a driver is in test_sink, of an archiver in
# archive/test_cli_archive.
SHORT = (("executor", "worker", "broker"),)
KILLS = int(os.environ.get("POSTHOUSE_KILLS", "0"))
ROUNDS = tuple((VICTIMS[number % len(VICTIMS)],) for number in range(KILLS)) or SHORT
TOPICS = ("orders", "passed", "totals")
KEYS = 7
PARTITIONS = 2


class Orders:
    """A producer of numbered orders; those that were acknowledged are remembered."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer(settings | {"log_level": 0})
        self._over = threading.Event()
        self._next = 0
        self.sent: list[tuple[bytes, int]] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            for _ in range(3):
                self._next += 1
                order = (b"key %d" % (self._next % KEYS), self._next)
                self._producer.produce("orders", b"%d" % order[1], order[0])
                self.sent.append(order)
            self._producer.poll(0)

    def finish(self) -> None:
        """All of them have been acknowledged."""
        self._over.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def committed(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Keys and values as a read-committed consumer of another make sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
    found, ended = [], 0
    while ended < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, f"no end of {topic} in sight"
        if message.error():
            ended += 1
        else:
            found.append((message.key() or b"", message.value() or b""))
    consumer.close()
    return found


@pytest.mark.timeout(600 + 60 * len(ROUNDS))
def test_every_order_once_and_the_archive_is_the_log(tmp_path: Path) -> None:
    random = Random(SEED)
    broker = Broker(tmp_path / "data")
    with Client(broker.bootstrap) as client:
        for topic in TOPICS:
            client.create_topic(topic, partitions=PARTITIONS)
    orders = Orders(broker.bootstrap)
    driver = Driver(broker.bootstrap, tmp_path)
    archiver = Archiver(broker.bootstrap, tmp_path, TOPICS)
    try:
        driver.wait_until_started()
        for victims in ROUNDS:
            driver.wait_for_epochs(random.randint(1, 3))
            # Not an event on purpose: the kill may find anything under way.
            threading.Event().wait(random.uniform(0, 2))
            for victim in victims:
                kill(victim, driver, archiver, broker, random)
            driver.wait_until_started()
            archiver.revive()
        orders.finish()
        (tmp_path / "stop").touch()
        while (status := driver.wait()) != 0:
            assert driver.starts < 3 * len(ROUNDS) + 3, f"the driver ends with {status}: {driver.tail()}"
            driver.revive()
        passed = [(key, int(value)) for key, value in committed(broker.bootstrap, "passed")]
        assert check_passed(orders.sent, passed) == []
        totals = [(key, *_numbers(value)) for key, value in committed(broker.bootstrap, "totals")]
        assert check_totals(orders.sent, totals) == []
        archiver.finish()
        for topic in TOPICS:
            assert archived(tmp_path / "archive", topic) == logged(broker.bootstrap, topic)
    finally:
        orders.finish()
        driver.stop()
        archiver.stop()
        broker.stop()


def _numbers(value: bytes) -> tuple[int, int]:
    count, total = value.split()
    return int(count), int(total)


def kill(victim: str, driver: Driver, archiver: Archiver, broker: Broker, random: Random) -> None:
    if victim == "driver":
        driver.kill()
    elif victim == "broker":
        broker.kill()
    elif victim == "archiver":
        archiver.kill()
    else:
        found = driver.executors() if victim == "executor" else driver.python_workers()
        if found:
            send_kill(random.choice(found))


def logged(bootstrap: str, topic: str) -> list[Message]:
    with Client(bootstrap) as client:
        return sorted(client.messages(topic))


def archived(directory: Path, topic: str) -> list[Message]:
    plan = ArchivePlan.open(str(directory))
    id = plan.topic_id(topic)
    assert id is not None
    found = []
    for partition in plan.partitions(id):
        everything = ArchiveRange(partition=partition, first=0, end=2**62)
        for slice in plan.slices(id, everything):
            for batch in slice.read(arrow_schema(source_schema(include_headers=True))):
                found += [_message(row) for row in batch.to_pylist()]
    return sorted(found)


def _message(row: dict[str, Any]) -> Message:
    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
    ms = round(row["timestamp"].timestamp() * 1000)
    return Message(row["partition"], row["offset"], ms, row["key"], row["value"], headers)
