"""Messages that wait before they are routed: exchanges of the type x-delayed-message, by pika."""

import time
from itertools import combinations
from typing import Any

import pytest
from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker

from tests.clients.amqp.blocking import Inbox, get_all, take, wait

pytestmark = pytest.mark.usefixtures("posthouse_only")


def declare(channel: Any, name: str, kind: str = "direct") -> None:
    """An exchange and a queue of one name, bound by the key "key"."""
    arguments = {"x-delayed-type": kind}
    channel.exchange_declare(name, "x-delayed-message", auto_delete=True, arguments=arguments)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name, "key")


def send(channel: Any, name: str, delay: Any, key: str = "key", **properties: Any) -> None:
    headers = {} if delay is None else {"x-delay": delay}
    channel.basic_publish(name, key, str(delay).encode(), BasicProperties(headers=headers, **properties))


def test_come_when_they_are_due(channel: Any, connection: Any, name: str) -> None:
    """Not before, and those that are due earlier before those that are due later."""
    declare(channel, name)
    inbox = Inbox(channel, name, ack=True)
    due: dict[bytes, tuple[float, float]] = {}
    for delay in (600, 400, None, 0, 200):
        before = time.monotonic()
        send(channel, name, delay)
        wait_seconds = (delay or 0) / 1000
        due[str(delay).encode()] = (before + wait_seconds, time.monotonic() + wait_seconds)
    for number in range(1, 6):
        wait(lambda number=number: len(inbox) >= number, connection)  # type: ignore[misc]
        assert time.monotonic() >= due[inbox[number - 1].body][0]
    for earlier, later in combinations(inbox.bodies, 2):
        assert due[earlier][0] <= due[later][1], f"{later!r} was due before {earlier!r}: {inbox.bodies}"


def test_nothing_is_to_be_had_before(channel: Any, name: str) -> None:
    declare(channel, name)
    send(channel, name, 1000)
    assert get_all(channel, name) == []
    assert [each.body for each in take(channel, name, 1)] == [b"1000"]


def test_header_stays_and_is_marked_as_served(channel: Any, name: str) -> None:
    """As with RabbitMQ's plugin: the number is negative after the delay."""
    declare(channel, name)
    send(channel, name, 50, message_id="m", delivery_mode=2)
    [found] = take(channel, name, 1)
    assert (found.method.exchange, found.method.routing_key) == (name, "key")
    assert (found.properties.message_id, found.properties.delivery_mode) == ("m", 2)
    assert found.properties.headers["x-delay"] == -50


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout"])
def test_routed_as_the_type_says(channel: Any, name: str, kind: str) -> None:
    declare(channel, name, kind)
    send(channel, name, 30, key="other")
    send(channel, name, 60)
    expected = [b"30", b"60"] if kind == "fanout" else [b"60"]
    assert [each.body for each in take(channel, name, len(expected))] == expected


def test_bindings_count_when_it_is_due(channel: Any, name: str) -> None:
    declare(channel, name)
    send(channel, name, 1000, key="later")
    channel.queue_bind(name, name, "later")
    assert [each.body for each in take(channel, name, 1)] == [b"1000"]


def test_type_must_be_given(connection: Any, name: str) -> None:
    for arguments in ({}, {"x-delayed-type": "nonsense"}):
        with pytest.raises(ChannelClosedByBroker) as caught:
            connection.channel().exchange_declare(name, "x-delayed-message", arguments=arguments)
        assert caught.value.reply_code == 406


def test_many(channel: Any, name: str) -> None:
    declare(channel, name)
    for number in range(500):
        send(channel, name, 100 + (number * 37) % 200)
    found = [int(each.body) for each in take(channel, name, 500)]
    assert sorted(found) == sorted(100 + (number * 37) % 200 for number in range(500))
