"""The brokers that users start in their own tests."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from posthouse.model.errors import InvalidConfig
from posthouse.settings import Address
from posthouse.testing import AsyncBroker, ThreadBroker, running_broker


def produce(kafka: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
    producer.produce("t", value, partition=0)
    assert producer.flush(30) == 0


def first(kafka: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "unused", "log_level": 0})
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    value: bytes | None = message.value()
    return value


def test_a_broker_in_a_thread() -> None:
    with running_broker() as broker:
        produce(broker.kafka, b"hello")
        assert first(broker.kafka) == b"hello"


def test_two_brokers_know_nothing_of_each_other() -> None:
    with ThreadBroker() as one, ThreadBroker() as other:
        assert one.kafka != other.kafka
        produce(one.kafka, b"one")
        produce(other.kafka, b"other")
        assert (first(one.kafka), first(other.kafka)) == (b"one", b"other")


def test_data_outlives_the_broker(tmp_path: Path) -> None:
    with running_broker(data=tmp_path) as broker:
        produce(broker.kafka, b"kept")
    with running_broker(data=str(tmp_path)) as broker:
        assert first(broker.kafka) == b"kept"


def test_settings() -> None:
    with running_broker(default_partitions=9) as broker:
        producer = Producer({"bootstrap.servers": broker.kafka, "log_level": 0})
        assert len(producer.list_topics("t", 30).topics["t"].partitions) == 9


def test_records_with_times_long_ago_are_not_deleted_during_a_test_unless_it_asks_for_it() -> None:
    longest_test_seconds = 3600
    assert AsyncBroker().settings.retention_check_seconds > longest_test_seconds
    assert AsyncBroker(retention_check_seconds=0.5).settings.retention_check_seconds == 0.5


def test_start_and_stop_by_hand() -> None:
    broker = ThreadBroker()
    broker.start()
    produce(broker.kafka, b"x")
    broker.stop()
    broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        print(broker.kafka)


def test_what_goes_wrong_is_raised_here() -> None:
    with running_broker() as broker, pytest.raises(InvalidConfig, match="is in use"):
        ThreadBroker(kafka=Address.parse(broker.kafka)).start()


async def test_a_broker_in_the_callers_loop() -> None:
    async with AsyncBroker() as broker:
        assert Address.parse(broker.kafka).port > 0
    with pytest.raises(RuntimeError, match="not running"):
        print(broker.kafka)


def test_the_plugin_is_light() -> None:
    """It is loaded in every pytest run of whoever has posthouse installed."""
    code = (
        "import sys, posthouse.testing.plugin as plugin\n"
        "assert not {'uvloop', 'posthouse.app', 'posthouse.broker'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
