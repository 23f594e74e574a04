"""A client that knows one address of two survives the death of that broker; nothing acknowledged is lost."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cluster.survivors import Aiokafka, JavaClients, Librdkafka, Pika, Survivor
from tests.java import jars
from tests.postgres import PostgresServer, new_database
from tests.served import ServedBroker

pytestmark = [pytest.mark.xdist_group("survival"), pytest.mark.timeout(240)]

FAILOVER_SECONDS = 10.0
SLACK_SECONDS = 3.0
"""The machine of the tests has other things to do."""
PATIENCE_SECONDS = 40.0
_BEFORE_SECONDS = 2.0
KAFKA = ("librdkafka", "aiokafka", "java")
"""Each of them sends to a topic of its name."""


@cache
def java_clients() -> Path | str:
    """The directory of Kafka's own clients, or why they are left out."""
    if not any(os.environ.get(name) for name in ("POSTHOUSE_CLUSTER", "POSTHOUSE_JAVA")):
        return "takes a JVM: make test-cluster or make test-java"
    try:
        return jars.fetched("clients", jars.CLIENTS)
    except jars.Unavailable as error:
        return f"Kafka's Java clients: {error}"


def need(death: "Death", client: str) -> None:
    """Skip the test of a client that cannot be had here."""
    if client not in death.survivors:
        pytest.skip(str(java_clients()))


def served(place: Path, url: str, name: str, **settings: Any) -> ServedBroker:
    (place / "objects").mkdir(exist_ok=True)
    return ServedBroker(
        place / name,
        database=url,
        objects=f"file://{place}/objects",
        broker_name=name,
        peer="127.0.0.1:0",
        **settings,
    )


def until_served(admin: str, seconds: float) -> float:
    """How long it took until requests were answered."""
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        try:
            if httpx.get(f"http://{admin}/v1/topics", timeout=seconds).status_code == 200:
                return time.monotonic() - begun
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"no answer within {seconds:g} s")


def wait_for_brokers(bootstrap: str, count: int) -> None:
    """Clients learn of all brokers when they connect, and of later ones only minutes after."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(admin.list_topics(timeout=PATIENCE_SECONDS).brokers) < count:
        assert time.monotonic() < deadline, "the brokers do not know each other"
        time.sleep(0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """Of the first broker: when, how long the second took, and what clients did meanwhile."""

    at: float
    failover_seconds: float
    survivors: dict[str, Survivor]
    logs: dict[str, list[int]]
    """What is in the topics in the end."""


@pytest.fixture(scope="module")
def death(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Death]:
    place = tmp_path_factory.mktemp("survival")
    with ExitStack() as stack:
        url = stack.enter_context(new_database(postgres))
        first = served(place, url, "first")
        stack.callback(first.kill)
        second = served(place, url, "second")
        stack.callback(second.stop)
        wait_for_brokers(first.bootstrap, 2)
        survivors: dict[str, Survivor] = {
            "librdkafka": Librdkafka(first.bootstrap),
            "aiokafka": Aiokafka(first.bootstrap),
            "pika": Pika([first.amqp, second.amqp]),
        }
        libraries = java_clients()
        if isinstance(libraries, Path):
            java = JavaClients(first.bootstrap, libraries, place / "java.log")
            stack.callback(java.kill)
            survivors["java"] = java
        for each in survivors.values():
            each.start()
        _wait_until(survivors, lambda each: len(each.sent) > 20 and bool(each.read))
        time.sleep(_BEFORE_SECONDS)
        at = time.monotonic()
        first.kill()
        failover_seconds = until_served(second.admin, PATIENCE_SECONDS)
        _wait_until(survivors, lambda each: each.first_sent_after(at + 0.5) is not None)
        time.sleep(1)
        for each in survivors.values():
            each.finish(PATIENCE_SECONDS)
        logs = {topic: in_log(second.bootstrap, topic) for topic in KAFKA if topic in survivors}
        yield Death(at=at, failover_seconds=failover_seconds, survivors=survivors, logs=logs)


def in_log(bootstrap: str, topic: str) -> list[int]:
    """All records of the topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "auto.offset.reset": "earliest"}
    )
    found: list[int] = []
    for partition in consumer.list_topics(topic).topics[topic].partitions:
        place = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place)
        consumer.assign([place])
        position = 0
        while position < end:
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None and message.error() is None and message.value() is not None
            found.append(int(message.value() or b""))
            position = (message.offset() or 0) + 1
    consumer.close()
    return found


def _wait_until(survivors: Mapping[str, Survivor], is_so: Callable[[Survivor], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while waiting := [name for name, each in survivors.items() if not is_so(each)]:
        for name in waiting:
            if survivors[name].failure is not None:
                raise AssertionError(name) from survivors[name].failure
        assert time.monotonic() < deadline, f"no further: {', '.join(waiting)}"
        time.sleep(0.05)


def test_the_second_broker_serves_within_ten_seconds(death: Death) -> None:
    assert death.failover_seconds <= FAILOVER_SECONDS + SLACK_SECONDS


@pytest.mark.parametrize("client", [*KAFKA, "pika"])
def test_a_client_goes_on_and_loses_nothing(death: Death, client: str) -> None:
    need(death, client)
    survivor = death.survivors[client]
    before = {number for number, at in survivor.sent.items() if at <= death.at}
    after = set(survivor.sent) - before
    assert before and after
    unread = set(survivor.sent) - set(survivor.read)
    assert not unread, f"the log has of them {unread & set(death.logs.get(client, ()))}, of {max(after)}"
    resumed = survivor.first_sent_after(death.at + 0.5)
    assert resumed is not None
    assert resumed - death.at <= FAILOVER_SECONDS + SLACK_SECONDS + 10


@pytest.mark.parametrize("client", KAFKA)
def test_no_record_of_an_idempotent_producer_comes_twice(death: Death, client: str) -> None:
    need(death, client)
    stored = death.logs[client]
    assert len(stored) == len(set(stored)) >= len(death.survivors[client].sent)
