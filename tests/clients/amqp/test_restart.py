"""What is still there when the broker comes back on the same directory."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker

from posthouse.settings import Address
from posthouse.testing import running_broker
from tests.clients.amqp.blocking import count, get_all, publish, take
from tests.clients.amqp.rabbit import Rabbit
from tests.stored import end_lease, stored_in

pytestmark = pytest.mark.usefixtures("posthouse_only")

PROPERTIES = BasicProperties(delivery_mode=2, message_id="m", headers={"a": [1, {"b": "c"}]}, type="t")


@contextmanager
def connected(data: Path) -> Iterator[Any]:
    """A channel to a broker that runs for as long; closing it is left to the end of the broker."""
    with running_broker(**stored_in(data), amqp=Address("127.0.0.1", 0)) as broker:
        address = Rabbit(address=broker.amqp, kafka=broker.kafka)
        connection = pika.BlockingConnection(pika.URLParameters(address.url))
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
        if connection.is_open:
            connection.close()


def is_there(channel: Any, queue: str) -> bool:
    try:
        channel.connection.channel().queue_declare(queue, passive=True)
    except ChannelClosedByBroker:
        return False
    return True


def test_durable_things_survive(tmp_path: Path) -> None:
    with connected(tmp_path) as channel:
        channel.exchange_declare("durable", "topic", durable=True)
        channel.exchange_declare("target", "fanout", durable=True)
        channel.exchange_bind("target", "durable", "a.#")
        channel.queue_declare("durable", durable=True, arguments={"x-max-priority": 5, "x-max-length": 100})
        channel.queue_bind("durable", "target")
        channel.basic_publish("durable", "a.b", b"one", PROPERTIES, mandatory=True)
        channel.basic_publish("durable", "a.c", b"two", PROPERTIES, mandatory=True)
    with connected(tmp_path) as channel:
        first, second = take(channel, "durable", 2)
        assert (first.body, second.body) == (b"one", b"two")
        assert (first.properties, first.method.exchange) == (PROPERTIES, "durable")
        assert first.method.routing_key == "a.b"
        channel.basic_publish("durable", "a.d", b"three", mandatory=True)
        channel.queue_declare("durable", durable=True, arguments={"x-max-priority": 5, "x-max-length": 100})
        assert get_all(channel, "durable") == [b"three"]


def test_what_was_settled_stays_settled(tmp_path: Path) -> None:
    with connected(tmp_path) as channel:
        channel.queue_declare("queue", durable=True)
        publish(channel, "queue", *(b"%d" % number for number in range(10)), delivery_mode=2)
        tags = [channel.basic_get("queue")[0].delivery_tag for _ in range(6)]
        for number in (0, 2, 3):
            channel.basic_ack(tags[number])
        channel.basic_reject(tags[4], requeue=False)
        count(channel, "queue")
    with connected(tmp_path) as channel:
        left = take(channel, "queue", 6)
        assert [each.body for each in left] == [b"1", b"5", b"6", b"7", b"8", b"9"]
        assert [each.method.redelivered for each in left] == [True, True, False, False, False, False]
        assert get_all(channel, "queue") == []


def test_transient_things_go(tmp_path: Path) -> None:
    with connected(tmp_path) as channel:
        channel.queue_declare("transient", durable=False)
        channel.queue_declare("exclusive", exclusive=True)
        channel.queue_declare("durable", durable=True)
        channel.exchange_declare("transient", "fanout", durable=False)
        channel.exchange_declare("durable", "fanout", durable=True)
        channel.queue_bind("transient", "durable")
        channel.queue_bind("durable", "transient")
        publish(channel, "durable", b"transient message", delivery_mode=1)
        publish(channel, "durable", b"durable message", delivery_mode=2)
    with connected(tmp_path) as channel:
        assert not is_there(channel, "transient")
        assert not is_there(channel, "exclusive")
        assert b"durable message" in get_all(channel, "durable")
        with pytest.raises(ChannelClosedByBroker):
            channel.exchange_declare("transient", passive=True)


def test_messages_wait_and_expire_over_a_restart(tmp_path: Path) -> None:
    with connected(tmp_path) as channel:
        channel.queue_declare("dead", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("queue", durable=True, arguments=arguments)
        publish(channel, "queue", b"short", delivery_mode=2, expiration="300")
        publish(channel, "queue", b"long", delivery_mode=2, expiration="600000")
    with connected(tmp_path) as channel:
        assert [each.body for each in take(channel, "dead", 1)] == [b"short"]
        assert get_all(channel, "queue") == [b"long"]


def test_delayed_messages_come_after_a_restart(tmp_path: Path) -> None:
    with connected(tmp_path) as channel:
        arguments = {"x-delayed-type": "direct"}
        channel.exchange_declare("delayed", "x-delayed-message", durable=True, arguments=arguments)
        channel.queue_declare("queue", durable=True)
        channel.queue_bind("queue", "delayed", "key")
        properties = BasicProperties(headers={"x-delay": 500}, delivery_mode=2)
        channel.basic_publish("delayed", "key", b"later", properties)
    with connected(tmp_path) as channel:
        assert [each.body for each in take(channel, "queue", 1)] == [b"later"]


def test_transactions_are_whole(tmp_path: Path) -> None:
    with connected(tmp_path) as channel:
        channel.queue_declare("queue", durable=True)
        transactional = channel.connection.channel()
        transactional.tx_select()
        publish(transactional, "queue", b"committed", delivery_mode=2)
        transactional.tx_commit()
        publish(transactional, "queue", b"open", delivery_mode=2)
    with connected(tmp_path) as channel:
        assert get_all(channel, "queue") == [b"committed"]


def test_confirmed_messages_survive_a_kill(tmp_path: Path) -> None:
    """`posthouse serve` as a process, killed while it is published to."""
    process, address = serve(tmp_path)
    connection = pika.BlockingConnection(pika.URLParameters(address.url))
    channel = connection.channel()
    channel.queue_declare("queue", durable=True)
    channel.confirm_delivery()
    confirmed = 0
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        publish(channel, "queue", b"%d" % confirmed, delivery_mode=2)
        confirmed += 1
    process.send_signal(signal.SIGKILL)
    process.wait(20)
    end_lease(tmp_path / "data")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(time_limit=20)
    with connected(tmp_path / "data") as channel:
        assert get_all(channel, "queue") == [b"%d" % number for number in range(confirmed)]


def serve(directory: Path) -> tuple["subprocess.Popen[str]", Rabbit]:
    place = stored_in(directory / "data")
    command = [
        *(str(Path(sys.executable).with_name("posthouse")), "serve"),
        *(text for name, value in place.items() for text in (f"--{name}", str(value))),
        *("--kafka", "127.0.0.1:0", "--amqp", "127.0.0.1:0", "--admin", "off"),
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POSTHOUSE_")}
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (directory / "log").read_text()
    listeners = json.loads(line)["listeners"]
    return process, Rabbit(address=listeners["amqp"], kafka=listeners["kafka"])
