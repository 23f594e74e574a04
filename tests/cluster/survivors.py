"""Clients that produce and consume until they are told to stop, in threads, whatever their broker does."""

import asyncio
import contextlib
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import pika
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import KafkaError as ConfluentError
from pika.adapters.blocking_connection import BlockingChannel

from posthouse.settings import Address
from tests.java import jars

_PAUSE_SECONDS = 0.02
_SEND_SECONDS = 60
_COMMIT_EVERY = 20
"""Records. On a busy machine a consumer that commits each one is slower than the producer."""
_OF_CONNECTIONS = {ConfluentError._TRANSPORT, ConfluentError._ALL_BROKERS_DOWN}
"""librdkafka's word that a connection broke, or could not be made. It makes another one by itself."""
_FORCED = 320
"""AMQP's reply code of a broker that stops, or hands over a virtual host."""


class Survivor:
    """`sent` are the numbers that were acknowledged, with the time; `read` those that were consumed."""

    def __init__(self) -> None:
        self.sent: dict[int, float] = {}
        self.read: list[int] = []
        self.errors: list[str] = []
        """What its application was told, and went on after: exceptions, and messages that are errors."""
        self.has_committed = False
        """Whether the last commit was accepted."""
        self.failure: BaseException | None = None
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(work,), daemon=True)
            for work in (self._produce, self._consume)
        ]
        self._produced = threading.Event()

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def _run(self, work: "object") -> None:
        try:
            assert callable(work)
            work()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.failure = error
        finally:
            if work == self._produce:
                self._produced.set()

    def acknowledged(self, number: int) -> None:
        self.sent[number] = time.monotonic()

    def _goes_on(self) -> bool:
        return not self._is_over.is_set()

    def _lacks(self) -> bool:
        """Whether the consumer has to go on."""
        return not self._produced.is_set() or not set(self.sent) <= set(self.read)

    def first_sent_after(self, when: float) -> float | None:
        return min((at for at in list(self.sent.values()) if at > when), default=None)

    def finish(self, seconds: float) -> None:
        """Send no more, and consume what was sent."""
        self._is_over.set()
        deadline = time.monotonic() + seconds
        for each in self._threads:
            each.join(max(deadline - time.monotonic(), 0))
        if self.failure is not None:
            raise self.failure
        stuck = [each.name for each in self._threads if each.is_alive()]
        assert not stuck, f"{type(self).__name__}: {', '.join(stuck)} did not end within {seconds:g} s"

    def _produce(self) -> None:
        raise NotImplementedError

    def _consume(self) -> None:
        raise NotImplementedError


class Librdkafka(Survivor):
    """confluent-kafka; it knows one address."""

    def __init__(
        self, address: str, topic: str = "librdkafka", *, commits: bool = False, protocol: str = "classic"
    ) -> None:
        """With `commits`, the consumer commits some of its offsets itself, and is told how that ended."""
        super().__init__()
        self._topic = topic
        self._commits = commits
        self._protocol = protocol
        self._common = {"bootstrap.servers": address, "error_cb": self._told}

    def _told(self, error: ConfluentError) -> None:
        if error.code() not in _OF_CONNECTIONS:
            self.errors.append(str(error))

    def _produce(self) -> None:
        producer = Producer({**self._common, "enable.idempotence": True})
        number = 0
        while self._goes_on():
            number += 1
            producer.produce(self._topic, b"%d" % number, on_delivery=self._delivered)
            producer.poll(_PAUSE_SECONDS)
        producer.flush(_SEND_SECONDS)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged(int(message.value()))  # type: ignore[attr-defined]

    def _consume(self) -> None:
        consumer = Consumer(
            {
                **self._common,
                "group.id": f"survivors-{uuid4()}",
                "group.protocol": self._protocol,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        consumer.subscribe([self._topic])
        while self._lacks():
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(str(message.error()))
                continue
            self.read.append(int(message.value() or b""))
            if self._commits and len(self.read) % _COMMIT_EVERY == 0:
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        self.has_committed = False
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            self.errors.append(str(error))
        else:
            self.has_committed = True


class Aiokafka(Survivor):
    """It knows one address."""

    def __init__(self, address: str, *, commits: bool = False) -> None:
        """With `commits`, the consumer waits for each commit of its offsets, and is told how it ended."""
        super().__init__()
        self._address = address
        self._commits = commits
        self._topic = "aiokafka"

    def _produce(self) -> None:
        asyncio.run(self._produce_on())

    async def _produce_on(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._address, enable_idempotence=True, metadata_max_age_ms=500
        )
        await producer.start()
        number = 0
        while self._goes_on():
            number += 1
            await producer.send_and_wait(self._topic, b"%d" % number)
            self.acknowledged(number)
            await asyncio.sleep(_PAUSE_SECONDS)
        await producer.stop()

    def _consume(self) -> None:
        asyncio.run(self._consume_on())

    async def _consume_on(self) -> None:
        consumer = AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._address,
            group_id=f"survivors-{uuid4()}",
            auto_offset_reset="earliest",
            metadata_max_age_ms=500,
        )
        await consumer.start()
        while self._lacks():
            try:
                found = await consumer.getmany(timeout_ms=200)
                self.read += [int(each.value or b"") for messages in found.values() for each in messages]
                if self._commits and found:
                    self.has_committed = False
                    await consumer.commit()
                    self.has_committed = True
            except KafkaError as error:
                self.errors.append(repr(error))
        await consumer.stop()


class JavaClients(Survivor):
    """kafka-clients, in a JVM of its own; it knows one address."""

    def __init__(self, address: str, libraries: Path, errors: Path) -> None:
        """`errors` is the file for what the JVM says besides."""
        super().__init__()
        program = Path(__file__).with_name("Survivor.java")
        command = jars.java(jars.compiled(program, libraries), program.stem, address, "java")
        self._has_sent_all = threading.Event()
        with errors.open("w") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )

    def _produce(self) -> None:
        """The JVM does, until it is told that it is enough."""
        assert self._process.stdin is not None
        self._is_over.wait()
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._has_sent_all.wait(_SEND_SECONDS), "the JVM has not sent all"

    def _consume(self) -> None:
        """The JVM does, and tells of both."""
        assert self._process.stdout is not None
        try:
            while self._lacks():
                word, _, number = self._process.stdout.readline().strip().partition(" ")
                assert word, f"the JVM has ended with {self._process.wait(_SEND_SECONDS)}"
                self._heard(word, number)
        finally:
            self.kill()

    def _heard(self, word: str, number: str) -> None:
        if word == "sent":
            self.acknowledged(int(number))
        elif word == "read":
            self.read.append(int(number))
        elif word == "produced":
            self._has_sent_all.set()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Pika(Survivor):
    """A list of hosts, as pika takes it; after a lost connection it connects again.

    Its errors are those that tell more than that the connection was lost, or forced to close."""

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__()
        self._hosts = [
            pika.ConnectionParameters(each.host, each.port, blocked_connection_timeout=30)
            for each in map(Address.parse, addresses)
        ]
        self._queue = "pika"
        self._number = 0

    def _channel(self) -> BlockingChannel:
        channel = pika.BlockingConnection(self._hosts).channel()
        channel.queue_declare(self._queue, durable=True)
        return channel

    @contextlib.contextmanager
    def _noting_errors(self) -> Iterator[None]:
        try:
            yield
        except pika.exceptions.ConnectionClosedByBroker as error:
            if error.reply_code != _FORCED:
                self.errors.append(repr(error))
        except pika.exceptions.AMQPConnectionError:
            pass  # it was lost, or no broker accepts one at this moment
        except pika.exceptions.AMQPError as error:
            self.errors.append(repr(error))

    def _produce(self) -> None:
        while self._goes_on():
            with self._noting_errors():
                channel = self._channel()
                channel.confirm_delivery()
                while self._goes_on():
                    self._number += 1
                    channel.basic_publish("", self._queue, b"%d" % self._number)
                    self.acknowledged(self._number)
                    time.sleep(_PAUSE_SECONDS)
                channel.connection.close()

    def _consume(self) -> None:
        while self._lacks():
            with self._noting_errors():
                channel = self._channel()
                for method, _, body in channel.consume(self._queue, inactivity_timeout=0.2):
                    if method is not None and body is not None:
                        self.read.append(int(body))
                        channel.basic_ack(method.delivery_tag)
                    if not self._lacks():
                        break
                channel.connection.close()
