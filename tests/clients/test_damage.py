"""Clients at a damaged end of the log: they are led past it, or told; none waits below the end for ever."""

import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Producer,
    TopicPartition,
)

from posthouse.testing import running_broker
from tests.cli.programs import inside
from tests.stored import IS_SHARED

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka import TopicPartition as KafkaPartition
    from kafka.errors import CorruptRecordError

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.skipif(IS_SHARED, reason="damages the files of a data directory"),
]

BATCHES = 4
DAMAGED = ("flipped", "cut", "gone")
"""Topics whose last batch, last half or only segment is not there any more."""
SWAPPED = ("mine", "yours")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker on a data directory with damage."""
    data = tmp_path_factory.mktemp("data")
    with running_broker(data=data) as broker:
        producer = Producer({"bootstrap.servers": broker.kafka})
        for topic in (*DAMAGED, *SWAPPED):
            for number in range(BATCHES):
                producer.produce(topic, f"{topic}-{number}", partition=0)
                assert producer.flush(30) == 0
    flipped, cut, gone, mine, yours = (_segment(data, topic) for topic in (*DAMAGED, *SWAPPED))
    content = flipped.read_bytes()
    flipped.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    gone.unlink()
    mine.rename(mine.with_name("aside"))
    yours.rename(mine)
    mine.with_name("aside").rename(yours)
    with running_broker(data=data) as broker:
        yield broker.kafka


def _segment(data: Path, topic: str) -> Path:
    [path] = [path for path in data.glob("topics/*/0-*.log") if f"{topic}-0".encode() in path.read_bytes()]
    return path


@pytest.mark.parametrize("topic", DAMAGED)
def test_confluent_reaches_the_end(kafka: str, topic: str) -> None:
    config = {"bootstrap.servers": kafka, "group.id": "g", "enable.partition.eof": True, "check.crcs": True}
    with closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            assert message.value() == f"{topic}-{message.offset()}".encode()
        assert message is not None and (error := message.error()) is not None
        assert (error.code(), message.offset()) == (KafkaError._PARTITION_EOF, BATCHES)


@pytest.mark.parametrize("topic", DAMAGED)
def test_kafka_python_reaches_the_end(kafka: str, topic: str) -> None:
    partition = KafkaPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=kafka, group_id=None)) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        while consumer.position(partition) < BATCHES:
            for message in consumer.poll(100).get(partition, ()):
                assert message.value == f"{topic}-{message.offset}".encode()


@pytest.mark.parametrize("topic", DAMAGED)
async def test_aiokafka_reaches_the_end(kafka: str, topic: str) -> None:
    partition = AioPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka)
    consumer.assign([partition])
    async with consumer:
        await consumer.seek_to_beginning(partition)
        while await consumer.position(partition) < BATCHES:
            for message in (await consumer.getmany(timeout_ms=100)).get(partition, ()):
                assert message.value == f"{topic}-{message.offset}".encode()


@pytest.mark.parametrize("topic", DAMAGED)
@pytest.mark.parametrize("follow", [(), ("--follow",)], ids=["once", "follow"])
def test_posthouse_consume_says_which_offsets_are_damaged(kafka: str, topic: str, follow: Any) -> None:
    done = inside("consume", topic, "--from-beginning", "--bootstrap", kafka, *follow)
    assert done.returncode == 1
    assert f"to {BATCHES - 1} of topic '{topic}', partition 0, are damaged; go on with offset" in done.stderr


@pytest.mark.parametrize("topic", SWAPPED)
def test_confluent_is_told_of_a_segment_that_is_not_served(kafka: str, topic: str) -> None:
    with closing(Consumer({"bootstrap.servers": kafka, "group.id": "g"})) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        message = consumer.poll(30)
        assert message is not None and (error := message.error()) is not None
        assert error.code() == KafkaError.INVALID_MSG


@pytest.mark.parametrize("topic", SWAPPED)
def test_kafka_python_is_told_of_a_segment_that_is_not_served(kafka: str, topic: str) -> None:
    partition = KafkaPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=kafka, group_id=None)) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        with pytest.raises(CorruptRecordError):
            while not consumer.poll(1000):
                pass
