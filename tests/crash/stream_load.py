"""Producers and a reader of librdkafka. Nothing is sent again, so that every value has one fate."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.checker.history import Assign, FinalRead, Outcome, Partition, Poll, Send
from tests.crash.loads import Load, Recorder

TOPIC = "orders"
PARTITIONS = 3
PRODUCERS = 4
_SECONDS = 60


def create_topics(bootstrap: str, *names: str, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, 1, config=config or {}) for name in names]
    for created in admin.create_topics(topics).values():
        created.result(30)


class StreamLoad:
    """Producers of one life of the broker, and one reader of all of them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._reader = recorder.number()
        self._positions = dict.fromkeys(range(PARTITIONS), 0)
        positions: dict[Partition, int | None] = dict.fromkeys(_partitions(TOPIC), 0)
        recorder.add(Assign(self._reader, recorder.now(), positions))

    def start(self, bootstrap: str, seed: int) -> Load:
        load = Load(self._recorder, (KafkaException,))
        producers: list[Callable[[], None]] = [
            partial(self._produce, bootstrap, load, Random(seed * 1000 + number))
            for number in range(PRODUCERS)
        ]
        load.start([*producers, partial(self._read, bootstrap, load)])
        return load

    def _produce(self, bootstrap: str, load: Load, random: Random) -> None:
        producer = Producer(settings(bootstrap) | {"retries": 0, "acks": "all", "linger.ms": 1})
        process = self._recorder.number()
        under_way: dict[int, tuple[int, Partition]] = {}
        count = 0
        while not load.over.is_set():
            value, place = self._recorder.number(), (TOPIC, random.randrange(PARTITIONS))
            under_way[value] = self._recorder.now(), place
            told = partial(self._told, load, process, under_way, value)
            try:
                producer.produce(TOPIC, str(value), partition=place[1], callback=told)
            except BufferError:
                del under_way[value]
                load.over.wait(0.01)
            producer.poll(0)
            count += 1
            if count % 50 == 0:
                load.over.wait(0.005)
        producer.purge()
        producer.flush(1)
        now = self._recorder.now()
        for value, (invoked, place) in under_way.items():  # nobody will tell
            self._recorder.add(Send(process, invoked, now, place, value, Outcome.UNKNOWN, None))

    def _told(
        self,
        load: Load,
        process: int,
        under_way: dict[int, tuple[int, Partition]],
        value: int,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        invoked, place = under_way.pop(value)
        outcome, offset = Outcome.OK, message.offset()
        if error is not None:
            load.fail(KafkaException(error))
            outcome, offset = Outcome.UNKNOWN, None
        self._recorder.add(Send(process, invoked, self._recorder.now(), place, value, outcome, offset))

    def _read(self, bootstrap: str, load: Load) -> None:
        """Goes on where it was in the life before: between the two nothing may be gone."""
        consumer = Consumer(settings(bootstrap) | {"group.id": "reader"})
        consumer.assign([TopicPartition(TOPIC, *each) for each in self._positions.items()])
        while not load.over.is_set():
            invoked = self._recorder.now()
            messages = [each for each in consumer.consume(1000, 0.05) if each.error() is None]
            if messages:
                read = [taken(message) for message in messages]
                self._positions |= {index: offset + 1 for (_, index), offset, _ in read}
                self._recorder.add(Poll(self._reader, invoked, self._recorder.now(), True, read))
        consumer.close()


def read_everything(bootstrap: str, topic: str) -> list[FinalRead]:
    """All that is committed in each partition, to its end."""
    consumer = Consumer(settings(bootstrap) | {"group.id": "last", "enable.partition.eof": True})
    found: dict[Partition, list[tuple[int, int]]] = {place: [] for place in _partitions(topic)}
    starts = {
        place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=_SECONDS)[0] for place in found
    }
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in found])
    ends: dict[Partition, int] = {}
    while len(ends) < len(found):
        message = consumer.poll(_SECONDS)
        assert message is not None, "the rest does not come"
        if (error := message.error()) is None:
            place, offset, value = taken(message)
            found[place].append((offset, value))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            place, offset = place_of(message)
            ends[place] = offset
    consumer.close()
    return [FinalRead(place, True, starts[place], ends[place], found[place]) for place in found]


def settings(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "error_cb": lambda error: None,
    }


def taken(message: Message) -> tuple[Partition, int, int]:
    place, offset = place_of(message)
    value = message.value()
    assert isinstance(value, bytes)
    return place, offset, int(value)


def place_of(message: Message) -> tuple[Partition, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None and partition is not None and offset is not None
    return (topic, partition), offset


def _partitions(topic: str) -> list[Partition]:
    return [(topic, index) for index in range(PARTITIONS)]
