"""Kafka Streams, with the classic and with the streams protocol: every word is counted exactly once, whatever
happens to its instances and to the broker."""

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from posthouse.settings import Address
from posthouse.testing import running_broker
from posthouse.testing.thread_broker import ThreadBroker
from tests.java.conftest import Program

pytestmark = [pytest.mark.xdist_group("java"), pytest.mark.timeout(300)]

WORDS = 10
QUICK: dict[str, Any] = {"group_session_ms": 6000, "group_heartbeat_ms": 500}
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "streams"])

Instances = Callable[[str], "subprocess.Popen[str]"]


def make_topics(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    for created in admin.create_topics([NewTopic("words", 4), NewTopic("counts", 2)]).values():
        created.result()


def produce(kafka: str, times: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka})
    for number in range(WORDS * times):
        producer.produce("words", f"w{number % WORDS}".encode(), partition=number % 4)
    assert producer.flush(30) == 0


class Counts:
    """What the application has written and committed."""

    def __init__(self, kafka: str) -> None:
        settings = {"bootstrap.servers": kafka, "group.id": "reader", "enable.auto.commit": False}
        settings |= {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        self._consumer = confluent_kafka.Consumer(settings)
        beginning = confluent_kafka.OFFSET_BEGINNING
        self._consumer.assign(
            [confluent_kafka.TopicPartition("counts", each, beginning) for each in range(2)]
        )
        self._last: dict[bytes, int] = {}
        self._seen: set[tuple[bytes, int]] = set()

    def wait_for(self, times: int) -> None:
        """Each word has been counted so often; and no count was ever written twice."""
        for _ in range(1000):
            if len(self._last) == WORDS and set(self._last.values()) == {times}:
                return
            record = self._consumer.poll(0.1)
            if record is None or record.error():
                continue
            key, value = record.key(), record.value()
            assert isinstance(key, bytes)
            assert value is not None
            count = int(value)
            assert (key, count) not in self._seen
            self._seen.add((key, count))
            self._last[key] = max(count, self._last.get(key, 0))
        raise AssertionError(f"counted are {self._last}, not {times} of each")

    def close(self) -> None:
        self._consumer.close()


def application(
    start: Program, libraries: Path, kafka: str, protocol: str, state: Path, **more: str
) -> Instances:
    def begin(name: str) -> "subprocess.Popen[str]":
        settings = {
            "bootstrap.servers": kafka,
            "application.id": "app",
            "group.protocol": protocol,
            "state.dir": str(state / name),
            "auto.offset.reset": "earliest",
            "processing.guarantee": "exactly_once_v2",
            "producer.transaction.timeout.ms": "5000",
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
        settings |= more
        return start(libraries, "StreamsCount.java", *(f"{key}={value}" for key, value in settings.items()))

    return begin


def tasks(instance: "subprocess.Popen[str]") -> tuple[int, int]:
    """How many it works on, and how many standbys it has."""
    assert instance.stdin is not None
    assert instance.stdout is not None
    instance.stdin.write("?")
    instance.stdin.flush()
    active = standby = 0
    for line in instance.stdout:
        words = line.split()
        assert words[0] != "failed", line
        if words[0] == "tasks":
            active, standby = active + int(words[2]), standby + int(words[4])
        if words == ["end"]:
            break
    return active, standby


def wait_for_tasks(*wanted: tuple["subprocess.Popen[str]", tuple[int, int]]) -> None:
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        found = [tasks(instance) for instance, _ in wanted]
        if found == [each for _, each in wanted]:
            return
        time.sleep(0.1)
    raise AssertionError(f"the instances have {found}")


def wait_until_empty(broker: ThreadBroker) -> None:
    """Instances with the classic protocol do not say that they leave: their session has to end."""
    deadline = time.monotonic() + 60
    groups = broker.broker.app.broker.groups
    while not all(group.is_empty for group_id, group in groups._registry if group_id == "app"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def stop(instance: "subprocess.Popen[str]") -> None:
    printed, _ = instance.communicate(timeout=60)
    assert instance.returncode == 0, printed


@PROTOCOLS
def test_instances_come_and_go(protocol: str, java_streams: Path, start: Program, tmp_path: Path) -> None:
    with running_broker(data=tmp_path / "data", **QUICK) as broker:
        make_topics(broker.kafka)
        counts = Counts(broker.kafka)
        begin = application(start, java_streams, broker.kafka, protocol, tmp_path)
        first = begin("first")
        produce(broker.kafka, 20)
        counts.wait_for(20)
        second = begin("second")
        wait_for_tasks((first, (4, 0)), (second, (4, 0)))
        produce(broker.kafka, 20)
        counts.wait_for(40)
        first.kill()
        produce(broker.kafka, 20)
        counts.wait_for(60)
        wait_for_tasks((second, (8, 0)))
        stop(second)
        counts.close()


@PROTOCOLS
def test_the_broker_is_restarted(protocol: str, java_streams: Path, start: Program, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = Address("127.0.0.1", probe.getsockname()[1])

    def running() -> ThreadBroker:
        return ThreadBroker(data=tmp_path / "data", kafka=place, **QUICK)

    with running() as broker:
        make_topics(broker.kafka)
        instance = application(start, java_streams, broker.kafka, protocol, tmp_path)("only")
        produce(broker.kafka, 20)
        counts = Counts(broker.kafka)
        counts.wait_for(20)
    with running() as broker:
        produce(broker.kafka, 20)
        counts.wait_for(40)
        counts.close()
        stop(instance)


def test_standbys(java_streams: Path, start: Program, tmp_path: Path) -> None:
    with running_broker(data=tmp_path / "data", **QUICK) as broker:
        make_topics(broker.kafka)
        wanted = ConfigEntry("streams.num.standby.replicas", "1", incremental_operation=AlterConfigOpType.SET)
        group = ConfigResource(ResourceType.GROUP, "app", incremental_configs=[wanted])
        admin = AdminClient({"bootstrap.servers": broker.kafka})
        admin.incremental_alter_configs([group])[group].result(30)
        begin = application(start, java_streams, broker.kafka, "streams", tmp_path)
        first, second = begin("first"), begin("second")
        wait_for_tasks((first, (4, 2)), (second, (4, 2)))
        produce(broker.kafka, 20)
        counts = Counts(broker.kafka)
        counts.wait_for(20)
        counts.close()
        stop(first)
        wait_for_tasks((second, (8, 0)))
        stop(second)


def test_from_one_protocol_to_the_other(java_streams: Path, start: Program, tmp_path: Path) -> None:
    with running_broker(data=tmp_path / "data", **QUICK) as broker:
        make_topics(broker.kafka)
        counts = Counts(broker.kafka)
        for round_, protocol in enumerate(("classic", "streams", "classic"), start=1):
            instance = application(start, java_streams, broker.kafka, protocol, tmp_path)("only")
            produce(broker.kafka, 10)
            counts.wait_for(10 * round_)
            stop(instance)
            wait_until_empty(broker)
        counts.close()
