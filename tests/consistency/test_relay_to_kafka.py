"""A relay to a plain Kafka, by librdkafka: every message once for consumers that read what is committed.

Against the listener of Posthouse that speaks Kafka, and in `make test-java` against a real Kafka.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from posthouse.client.errors import BadArgument, BrokerUnreachable
from posthouse.consistency.databases import open_database
from posthouse.consistency.errors import BrokerAhead, LeaseLost
from posthouse.consistency.kafka_target import KafkaTarget
from posthouse.consistency.outbox import shard_of
from posthouse.consistency.outbox_table import init
from posthouse.consistency.relay import Counts, Relay
from posthouse.consistency.target_urls import kafka_properties, open_target, shown
from posthouse.records.partitioner import partition_of
from posthouse.testing import ThreadBroker
from tests.consistency.kafka_server import need_kafka, running_kafka
from tests.consistency.relays import DyingTarget, Killed, publish, released, table_of, until
from tests.directories import IN_MEMORY
from tests.postgres import free_port

KEYS = ("ann", "bob", "cleo")
KILLS = int(os.environ.get("POSTHOUSE_KILLS", "5"))


@pytest.fixture(scope="module", params=["posthouse", "kafka"])
def kafka(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "posthouse":
        with ThreadBroker() as broker:
            yield broker.kafka
        return
    libraries = need_kafka()
    with (
        tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-kafka-") as place,
        running_kafka(Path(place), libraries) as address,
    ):
        yield address


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/shop.db"
    with open_database(url) as database:
        init(database)
    return url


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: str) -> str:
    name = f"t{abs(hash(request.node.nodeid))}"
    create(kafka, name)
    return name


def create(kafka: str, topic: str, partitions: int = 2, config: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    [created] = admin.create_topics([NewTopic(topic, partitions, config=dict(config or {}))]).values()
    created.result(60)
    until(lambda: topic in admin.list_topics(timeout=30).topics)


def found(kafka: str, topic: str) -> list[Message]:
    """All that is committed."""
    properties = {"bootstrap.servers": kafka, "group.id": "judge", "enable.partition.eof": True}
    with closing(Consumer({**properties, "isolation.level": "read_committed"})) as consumer:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        places = [TopicPartition(topic, each, 0) for each in partitions]
        consumer.assign(places)
        messages: list[Message] = []
        ended: set[int | None] = set()
        deadline = time.monotonic() + 60
        while len(ended) < len(places):
            message = consumer.poll(0.2)
            assert time.monotonic() < deadline
            if message is None:
                continue
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return messages


def values(kafka: str, topic: str) -> list[str]:
    return [(message.value() or b"").decode() for message in found(kafka, topic)]


@contextmanager
def relay_of(url: str, kafka: str, *, owner: str = "a", dies: str | None = None) -> Iterator[Relay]:
    with open_database(url) as database, closing(open_target(f"kafka://{kafka}")) as target:
        yield Relay(table_of(database, owner), DyingTarget(target, dies), Counts(), batch_size=7)


def test_messages_come_once_and_in_order(url: str, kafka: str, topic: str) -> None:
    for number in range(10):
        for key in KEYS:
            publish(url, topic, f"{key} {number}", key=key)
    publish(url, topic, "without a key")
    with relay_of(url, kafka) as relay:
        assert relay.send_all() == 31
        assert relay.send_all() == 0
    messages = found(kafka, topic)
    sent = [(message.value() or b"").decode() for message in messages]
    assert len(sent) == 31
    for key in KEYS:
        assert [each for each in sent if each.startswith(key)] == [f"{key} {number}" for number in range(10)]
    for message in messages:
        assert [header[0] for header in message.headers() or []] == ["amqp.message-id"]
    expected = {key: partition_of(key.encode(), 2) for key in KEYS}
    assert all(message.partition() == expected[_text(message.key())] for message in messages if message.key())


def _text(key: bytes | str | None) -> str:
    assert isinstance(key, bytes)
    return key.decode()


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_relay_dies(dies: str, url: str, kafka: str, topic: str) -> None:
    publish(url, topic, "1", "2", key="k")
    with pytest.raises(Killed), relay_of(url, kafka, dies=dies) as relay:
        relay.send_all()
    publish(url, topic, "3", key="k")
    released(url)
    with relay_of(url, kafka, owner="b") as other:
        assert other.send_all() == 3
    assert values(kafka, topic) == ["1", "2", "3"]


def test_relays_that_take_turns(url: str, kafka: str, topic: str) -> None:
    with relay_of(url, kafka) as first, relay_of(url, kafka, owner="b") as second:
        for number in range(4):
            publish(url, topic, str(number), key="k")
            assert (first, second)[number % 2].send_all() == 1
    assert values(kafka, topic) == ["0", "1", "2", "3"]


def test_a_relay_that_wakes_up_after_its_lease(url: str, kafka: str, topic: str) -> None:
    publish(url, topic, "1", "2", key="k")
    shard = shard_of(b"k")
    with open_database(url) as database, closing(open_target(f"kafka://{kafka}")) as target:
        table = table_of(database)
        turn = table.take(shard)
        assert turn is not None
        name = turn.name
        assert target.last_number(name) == 0
        batch = table.next_batch(shard, 10)
        assert batch is not None
        released(url)
        with relay_of(url, kafka, owner="b") as other:
            assert other.send_all() == 2
            with pytest.raises(BrokerAhead):
                target.write(name, batch)  # now it goes on
            publish(url, topic, "3", key="k")
            assert other.send_all() == 1
        with pytest.raises(LeaseLost):
            table.next_batch(shard, 10)
    assert values(kafka, topic) == ["1", "2", "3"]


def test_messages_that_are_refused_are_set_aside(url: str, kafka: str, topic: str) -> None:
    small = f"{topic}-small"
    create(kafka, small, 1, {"max.message.bytes": "2000"})
    publish(url, small, "1", "x" * 3000, "2", key="k")
    publish(url, topic, "3", key="k")
    with relay_of(url, kafka) as relay:
        assert (relay.send_all(), relay.counts.set_aside) == (3, 1)
        publish(url, small, "4", key="k")
        assert relay.send_all() == 1
    assert (values(kafka, small), values(kafka, topic)) == (["1", "2", "4"], ["3"])
    with open_database(url) as database:
        [(_, _, name, reason)] = table_of(database).failures(10)
    assert name == small and "Kafka refuses" in reason


@pytest.mark.timeout(1800)
def test_relays_are_killed(url: str, kafka: str, topic: str) -> None:
    randomness = random.Random(3)
    command = [sys.executable, "-m", "tests.consistency.relay_process", url, f"kafka://{kafka}"]
    relays = [subprocess.Popen(command) for _ in range(2)]
    expected: dict[str, list[str]] = {key: [] for key in KEYS}
    try:
        for number in range(KILLS * 10):
            key = KEYS[number % len(KEYS)]
            publish(url, topic, f"{key} {number}", key=key)
            expected[key].append(f"{key} {number}")
            if number % 10 == 9:
                with open_database(url) as database:
                    left = randomness.randrange(1, 10)
                    until(lambda: table_of(database).state().waiting <= left)  # noqa: B023
                killed = randomness.randrange(2)
                relays[killed].kill()
                relays[killed].wait()
                relays[killed] = subprocess.Popen(command)
        with open_database(url) as database:
            until(lambda: table_of(database).state().waiting == 0)
    finally:
        for relay in relays:
            relay.kill()
            relay.wait()
    sent = values(kafka, topic)
    for key in KEYS:
        assert [each for each in sent if each.startswith(f"{key} ")] == expected[key]
    assert len(sent) == sum(map(len, expected.values()))


def test_nobody_answers(url: str) -> None:
    publish(url, "t", "1")
    properties = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    with open_database(url) as database, KafkaTarget(properties, patience=0.3) as target:
        with pytest.raises(BrokerUnreachable):
            Relay(table_of(database), target, Counts()).send_all()
        assert table_of(database).state().waiting == 1


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("kafka://a,b:9", {"bootstrap.servers": "a:9092,b:9"}),
        ("kafkas://a:1", {"bootstrap.servers": "a:1", "security.protocol": "SSL"}),
        (
            "kafkas://ann:p%40ss@a:1?sasl.mechanism=PLAIN&ssl.ca.location=/ca.pem",
            {
                "bootstrap.servers": "a:1",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "ann",
                "sasl.password": "p@ss",
                "ssl.ca.location": "/ca.pem",
            },
        ),
    ],
)
def test_urls(url: str, expected: dict[str, str]) -> None:
    assert kafka_properties(url) == expected


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("ftp://a", "no target of a relay"),
        ("kafka://", "has no addresses"),
        ("kafka://a/topic", "has no addresses"),
        ("kafka://a?acks=0", "'acks' is no parameter"),
        ("kafka://a?ssl.nonsense=1", "the options of the target cannot be used: No such configuration"),
        ("kafka://a?security.protocol=none", "the options of the target cannot be used: Invalid value"),
        ("amqp://", "has no host"),
        ("amqp://a?acks=0", "'acks' is no parameter"),
    ],
)
def test_wrong_urls(url: str, detail: str) -> None:
    with pytest.raises(BadArgument, match=detail):
        open_target(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("kafka://ann:p4ss@a,b:9?ssl.key.password=p4ss", "kafka://a,b:9"),
        ("kafka://a?sasl.password=p4ss@p4ss", "kafka://"),
        ("amqp:guest:p4ss@rabbit", "amqp"),
        ("guest:p4ss@rabbit", "guest"),
        ("p4ss@rabbit", "rabbit"),
        ("kafka://ann:p4?p4ss@a", "kafka://"),
        ("amqp://ann:p4@p4ss@a/vhost?name=p4ss", "amqp://a/vhost"),
        ("amqp://ann:p4?p4ss@", "amqp://"),
        ("ftp://ann:p4?p4ss@a", "ftp://"),
    ],
)
def test_passwords_are_not_shown(url: str, expected: str) -> None:
    assert shown(url) == expected
    try:
        open_target(url).close()
    except BadArgument as error:
        assert "p4" not in str(error)
