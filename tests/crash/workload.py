"""Producers, consumers and a broker process that is killed under them."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.checker import History, Place

TOPIC = "orders"
PARTITIONS = 3
PRODUCERS = 4


class BrokerProcess:
    def __init__(self, data: Path, port: int = 0) -> None:
        command = [
            *(sys.executable, "-m", "posthouse", "serve", "--data", str(data)),
            *("--kafka", f"127.0.0.1:{port}", "--amqp", "127.0.0.1:0"),
            *("--journal-bytes", str(256 * 1024), "--log-level", "error"),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker did not start"
        listeners = json.loads(line)["listeners"]
        self.bootstrap: str = listeners["kafka"]
        self.amqp: str = listeners["amqp"]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        self._process.terminate()
        return self._process.wait(30)


@contextmanager
def broker(data: Path, port: int = 0) -> Iterator[BrokerProcess]:
    process = BrokerProcess(data, port)
    try:
        yield process
    finally:
        process.kill()


def create_topic(bootstrap: str) -> None:
    config = {"segment.bytes": "65536"}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=config)]).values()
    created.result(30)


class Load:
    """Clients of one broker's life. Nothing is sent again, so that every value has one fate."""

    def __init__(self, bootstrap: str, history: History, round_number: int) -> None:
        self._bootstrap = bootstrap
        self._history = history
        self._round = round_number
        self._unseen = [0] * PARTITIONS
        for place in history.seen:
            self._unseen[place.partition] = max(self._unseen[place.partition], place.offset + 1)
        self._over = threading.Event()
        self._lock = threading.Condition()
        self._threads = [
            *(threading.Thread(target=self._produce, args=(number,)) for number in range(PRODUCERS)),
            threading.Thread(target=self._consume),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait_for(self, *, acknowledged: int, seen: int) -> None:
        """Until the history has at least so many entries of each kind."""
        history = self._history
        with self._lock:
            assert self._lock.wait_for(
                lambda: len(history.acknowledged) >= acknowledged and len(history.seen) >= seen, 30
            )

    def finish(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _produce(self, number: int) -> None:
        random = Random(self._round * 1000 + number)
        producer = Producer(_settings(self._bootstrap) | {"retries": 0, "acks": "all", "linger.ms": 1})
        name = f"p{self._round}-{number}"
        for count in range(1_000_000):
            if self._over.is_set():
                break
            value = f"{name}:{count}"
            with self._lock:
                self._history.sent.add(value)
            try:
                producer.produce(
                    TOPIC, value, partition=random.randrange(PARTITIONS), callback=self._delivered
                )
            except BufferError:
                self._over.wait(0.01)
            producer.poll(0)
            if count % 50 == 0:
                self._over.wait(0.001)
        producer.purge()
        producer.flush(10)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            with self._lock:
                self._history.acknowledge(_text(message), _place(message))
                self._lock.notify_all()

    def _consume(self) -> None:
        consumer = Consumer(_settings(self._bootstrap) | {"group.id": "watcher", "fetch.wait.max.ms": 20})
        consumer.assign([TopicPartition(TOPIC, number, self._unseen[number]) for number in range(PARTITIONS)])
        while not self._over.is_set():
            for message in consumer.consume(1000, timeout=0.05):
                if message.error() is None:
                    with self._lock:
                        self._history.see(_place(message), _text(message))
                        self._lock.notify_all()
        consumer.close()


def read_everything(bootstrap: str) -> list[tuple[Place, str]]:
    consumer = Consumer(_settings(bootstrap) | {"group.id": "checker", "fetch.wait.max.ms": 20})
    partitions = [TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    left = 0
    for partition in partitions:
        low, high = consumer.get_watermark_offsets(partition, timeout=30)
        left += high - low
    consumer.assign(partitions)
    found: list[tuple[Place, str]] = []
    deadline = time.monotonic() + 60
    while len(found) < left and time.monotonic() < deadline:
        for message in consumer.consume(10_000, timeout=1):
            assert message.error() is None, message.error()
            found.append((_place(message), _text(message)))
    consumer.close()
    assert len(found) == left, f"{left} records are said to be there, {len(found)} came"
    return found


def _settings(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "log_level": 0, "enable.auto.commit": False} | {
        "error_cb": lambda error: None
    }


def _place(message: Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return Place(partition, offset)


def _text(message: Message) -> str:
    value = message.value()
    assert isinstance(value, bytes)
    return value.decode()
