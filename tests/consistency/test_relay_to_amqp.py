"""A relay to RabbitMQ, or to another broker of AMQP: every message at least once, known by its id.

Against the listener of Posthouse that speaks AMQP; with POSTHOUSE_TEST_AMQP (`make as-rabbitmq`) against
RabbitMQ.
"""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from posthouse.client.errors import BrokerUnreachable, ClientError, LoginRefused
from posthouse.consistency import Outbox
from posthouse.consistency.databases import open_database
from posthouse.consistency.outbox_table import init
from posthouse.consistency.refusals import TargetRefused
from posthouse.consistency.relay import Counts, Relay
from posthouse.consistency.relaying import Relaying
from posthouse.consistency.target_urls import batch_size_for, open_target
from posthouse.testing import ThreadBroker
from tests.consistency.applications import by_library, plain_connection
from tests.consistency.relays import DyingTarget, Killed, publish, released, table_of, until
from tests.postgres import free_port

OTHER = os.environ.get("POSTHOUSE_TEST_AMQP")
KEYS = ("ann", "bob", "cleo")
KILLS = int(os.environ.get("POSTHOUSE_KILLS", "4"))


@pytest.fixture(scope="module")
def amqp() -> Iterator[str]:
    """The URL without parameters."""
    if OTHER:
        yield f"amqp://guest:guest@{OTHER}/"
        return
    with ThreadBroker() as broker:
        yield f"amqp://guest:guest@{broker.amqp}/"


@pytest.fixture
def channel(amqp: str) -> Iterator[BlockingChannel]:
    with closing(pika.BlockingConnection(pika.URLParameters(amqp))) as connection:
        yield connection.channel()


@pytest.fixture
def queue(request: pytest.FixtureRequest, channel: BlockingChannel) -> Iterator[str]:
    name = f"q{abs(hash(request.node.nodeid))}"
    channel.queue_declare(name, durable=True)
    yield name
    channel.queue_delete(name)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/shop.db"
    with open_database(url) as database:
        init(database)
        with database.transaction():
            database.run("CREATE TABLE orders (id integer PRIMARY KEY, item varchar(20))")
    return url


@contextmanager
def relay_of(url: str, amqp: str, *, owner: str = "a", dies: str | None = None) -> Iterator[Relay]:
    with open_database(url) as database, closing(open_target(amqp)) as target:
        yield Relay(table_of(database, owner), DyingTarget(target, dies), Counts(), batch_size=7)


def found(channel: BlockingChannel, queue: str) -> list[tuple[pika.BasicProperties, str]]:
    messages: list[tuple[pika.BasicProperties, str]] = []
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return messages
        messages.append((properties, body.decode()))


def bodies(channel: BlockingChannel, queue: str) -> list[str]:
    return [body for _, body in found(channel, queue)]


def test_messages_come_in_order(url: str, amqp: str, channel: BlockingChannel, queue: str) -> None:
    for number in range(10):
        for key in KEYS:
            publish(url, queue, f"{key} {number}", key=key)
    with relay_of(url, amqp) as relay:
        assert relay.send_all() == 30
        assert relay.send_all() == 0
    sent = bodies(channel, queue)
    assert len(sent) == 30
    for key in KEYS:
        assert [each for each in sent if each.startswith(key)] == [f"{key} {number}" for number in range(10)]


def test_what_a_consumer_gets(url: str, amqp: str, channel: BlockingChannel, queue: str) -> None:
    def work(connection: object) -> None:
        headers = {"h": "x", "b": b"\xff", "n": None, "amqp.message-id": "not this"}
        Outbox().publish(connection, queue, {"a": 1}, key="k", headers=headers, message_id="id-1")

    by_library(url, work)
    with relay_of(url, amqp) as relay:
        relay.send_all()
    [(properties, body)] = found(channel, queue)
    assert (properties.message_id, properties.delivery_mode, body) == ("id-1", 2, '{"a":1}')
    assert properties.headers == {"h": "x", "b": b"\xff", "n": None, "message-key": "k"}


def test_through_an_exchange(url: str, amqp: str, channel: BlockingChannel, queue: str) -> None:
    exchange = f"x-{queue}"
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_bind(queue, exchange, "orders.*")
    publish(url, "orders.paid", "1")
    with relay_of(url, f"{amqp}?exchange={exchange}") as relay:
        assert relay.send_all() == 1
    assert bodies(channel, queue) == ["1"]
    channel.exchange_delete(exchange)
    publish(url, "orders.paid", "2")
    with pytest.raises(ClientError), relay_of(url, f"{amqp}?exchange={exchange}") as relay:
        relay.send_all()
    with open_database(url) as database:
        assert table_of(database).state().failed == 0, "it is not about the message"


def test_messages_that_no_queue_takes_are_set_aside(
    url: str, amqp: str, channel: BlockingChannel, queue: str
) -> None:
    publish(url, queue, "1", key="k")
    publish(url, f"{queue}-missing", "lost", key="k")
    with closing(plain_connection(url)) as connection:
        Outbox().publish(connection, queue, None, key="k")
        Outbox().publish(connection, queue, "long", key="k", message_id="ä" * 200)
        Outbox().publish(connection, queue, "long", key="k", headers={"h" * 300: "x"})
        connection.commit()
    publish(url, queue, "2", key="k")
    with relay_of(url, amqp) as relay:
        assert (relay.send_all(), relay.counts.set_aside) == (2, 4)
        assert bodies(channel, queue) == ["1", "2"]
        with open_database(url) as database:
            table = table_of(database)
            (_, _, name, reason), (_, _, _, tombstone), *long = table.failures(10)
            assert name == f"{queue}-missing" and "no queue takes it: 312 NO_ROUTE" in reason
            assert "AMQP has no tombstones" in tombstone
            assert ["AMQP has no" in each for _, _, _, each in long] == [True, True]
            channel.queue_declare(f"{queue}-missing")
            assert table.retry_failed() == 4
        assert (relay.send_all(), relay.counts.set_aside) == (1, 7)
    assert bodies(channel, f"{queue}-missing") == ["lost"]
    channel.queue_delete(f"{queue}-missing")


def test_two_messages_with_one_id(url: str, amqp: str, channel: BlockingChannel, queue: str) -> None:
    """What comes back is known by its id."""

    def work(connection: object) -> None:
        for topic in (queue, f"{queue}-missing", queue):
            Outbox().publish(connection, topic, topic, key="k", message_id="same")

    by_library(url, work)
    with relay_of(url, amqp) as relay:
        assert (relay.send_all(), relay.counts.set_aside) == (2, 1)
    assert bodies(channel, queue) == [queue, queue]


def test_a_full_queue_is_tried_again(url: str, amqp: str, channel: BlockingChannel, queue: str) -> None:
    full = f"{queue}-full"
    channel.queue_declare(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    publish(url, full, "1", key="k")
    with relay_of(url, amqp) as relay:
        assert relay.send_all() == 1
        publish(url, full, "2", key="k")
        with pytest.raises(TargetRefused, match="its queue may be full"):
            relay.send_all()
        assert bodies(channel, full) == ["1"]
        assert relay.send_all() == 1
    assert bodies(channel, full) == ["2"]
    channel.queue_delete(full)


def test_a_lease_is_enough_for_a_batch_of_one_key(
    url: str, amqp: str, channel: BlockingChannel, queue: str
) -> None:
    """Each message of it waits for a confirm."""
    size = batch_size_for(amqp)
    texts = [str(number) for number in range(size + 1)]
    publish(url, queue, *texts, key="k")
    with closing(open_target(amqp)) as target:
        relaying = Relaying(lambda: open_database(url), target, "a", batch_size=size)
        assert (relaying.once(), relaying.counts.batches) == (size + 1, 2)
    assert size < batch_size_for("kafka://a") and bodies(channel, queue) == texts


def test_a_message_waits_for_the_one_before_of_its_key(
    url: str, amqp: str, channel: BlockingChannel, queue: str
) -> None:
    """Otherwise a consumer that drops what it has had gets them in the wrong order."""
    full = f"{queue}-full"
    channel.queue_declare(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    publish(url, full, "1", key="k")
    with relay_of(url, amqp) as relay:
        assert relay.send_all() == 1
        publish(url, queue, "other", key="other")
        publish(url, full, "2", key="k")
        publish(url, queue, "3", key="k")
        with pytest.raises(TargetRefused):
            while relay.send_all():
                pass
        assert "3" not in bodies(channel, queue)
        assert bodies(channel, full) == ["1"]
        while relay.send_all():
            pass
    assert (bodies(channel, full), bodies(channel, queue)[-1]) == (["2"], "3")
    channel.queue_delete(full)


@pytest.mark.parametrize(
    ("dies", "expected"), [("before", ["1", "2", "3"]), ("after", ["1", "2", "1", "2", "3"])]
)
def test_a_relay_dies(
    dies: str, expected: list[str], url: str, amqp: str, channel: BlockingChannel, queue: str
) -> None:
    publish(url, queue, "1", "2", key="k")
    with pytest.raises(Killed), relay_of(url, amqp, dies=dies) as relay:
        relay.send_all()
    publish(url, queue, "3", key="k")
    released(url)
    with relay_of(url, amqp, owner="b") as other:
        assert other.send_all() == 3
    messages = found(channel, queue)
    assert [body for _, body in messages] == expected
    assert len({properties.message_id for properties, _ in messages}) == 3


def test_a_connection_that_was_closed_meanwhile(
    url: str, amqp: str, channel: BlockingChannel, queue: str
) -> None:
    publish(url, queue, "1")
    with open_database(url) as database, closing(open_target(amqp)) as target:
        relay = Relay(table_of(database), target, Counts())
        assert relay.send_all() == 1
        connection = target._connection  # type: ignore[union-attr]
        assert connection is not None
        target._run(connection.close())  # type: ignore[union-attr]
        publish(url, queue, "2")
        assert relay.send_all() == 1
    assert bodies(channel, queue) == ["1", "2"]


def test_nobody_answers_or_lets_it_in(url: str, amqp: str) -> None:
    publish(url, "q", "1")
    with (
        pytest.raises(BrokerUnreachable),
        relay_of(url, f"amqp://guest:guest@127.0.0.1:{free_port()}/") as relay,
    ):
        relay.send_all()
    with ThreadBroker(users={"ann": "secret"}) as broker:
        released(url)
        with (
            pytest.raises(LoginRefused),
            relay_of(url, f"amqp://ann:wrong@{broker.amqp}/", owner="b") as relay,
        ):
            relay.send_all()


@pytest.mark.timeout(1800)
def test_relays_are_killed(url: str, amqp: str, channel: BlockingChannel, queue: str) -> None:
    """What comes again does not come before what it was sent with: without repetitions all is in order."""
    randomness = random.Random(3)
    command = [sys.executable, "-m", "tests.consistency.relay_process", url, amqp]
    relays = [subprocess.Popen(command) for _ in range(2)]
    expected: dict[str, list[str]] = {key: [] for key in KEYS}
    try:
        with closing(plain_connection(url)) as connection:
            for number in range(KILLS * 10):
                key = KEYS[number % len(KEYS)]
                value = f"{key} {number}"
                Outbox().publish(connection, queue, value, key=key, message_id=value)
                connection.commit()
                expected[key].append(value)
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
    messages = found(channel, queue)
    assert all(properties.message_id == body for properties, body in messages)
    sent = list(dict.fromkeys(body for _, body in messages))
    for key in KEYS:
        assert [each for each in sent if each.startswith(f"{key} ")] == expected[key]
