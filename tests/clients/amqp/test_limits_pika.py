"""Messages that expire or find no room, and priorities; by pika's blocking connection."""

from typing import Any

import pika
import pytest
from pika import BasicProperties
from pika.exceptions import NackError

from tests.clients.amqp.blocking import Inbox, count, get, get_all, publish, take, wait
from tests.clients.amqp.dead_letters import dead_letter_queue, deaths, first_death
from tests.clients.amqp.rabbit import Rabbit

LONG = 600_000


def test_message_expires(channel: Any, connection: Any, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    publish(channel, name, b"short", expiration="1")
    wait(lambda: count(channel, name) == 0, connection)
    publish(channel, name, b"long", expiration=str(LONG))
    assert get_all(channel, name) == [b"long"]


def test_queue_lets_messages_expire(channel: Any, connection: Any, name: str) -> None:
    dead, exchange = dead_letter_queue(channel, name)
    arguments = {"x-message-ttl": 50, "x-dead-letter-exchange": exchange}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish(channel, name, b"a", b"b")
    publish(channel, name, b"c", expiration=str(LONG))
    found = take(channel, dead, 3)
    assert [each.body for each in found] == [b"a", b"b", b"c"]
    assert deaths(found[0]) == [(name, "expired", 1, "", [name])]
    assert first_death(found[0]) == [name, "expired", ""]
    assert count(channel, name) == 0


def test_of_both_lives_the_shorter_counts(channel: Any, name: str) -> None:
    dead, exchange = dead_letter_queue(channel, name)
    arguments = {"x-message-ttl": LONG, "x-dead-letter-exchange": exchange}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish(channel, name, b"a", expiration="10")
    [found] = take(channel, dead, 1)
    assert found.properties.expiration is None, "or it would expire again where it is now"
    [death] = found.properties.headers["x-death"]
    assert death["original-expiration"] == "10"


def test_held_message_does_not_expire(channel: Any, connection: Any, name: str) -> None:
    dead, exchange = dead_letter_queue(channel, name)
    arguments = {"x-message-ttl": 1000, "x-dead-letter-exchange": exchange}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish(channel, name, b"held", b"left")
    tag = channel.basic_get(name)[0].delivery_tag
    assert [each.body for each in take(channel, dead, 1)] == [b"left"]
    channel.basic_ack(tag)
    assert get_all(channel, dead) == []


def test_expiration_that_is_no_number(channel: Any, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    with pytest.raises(Exception, match=r"406.*invalid expiration 'soon'"):
        publish(channel, name, b"", expiration="soon")


def test_longest_queue(channel: Any, name: str) -> None:
    dead, exchange = dead_letter_queue(channel, name)
    arguments = {"x-max-length": 3, "x-dead-letter-exchange": exchange}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish(channel, name, *(b"%d" % number for number in range(5)))
    found = take(channel, dead, 2)
    assert [each.body for each in found] == [b"0", b"1"]
    assert deaths(found[0]) == [(name, "maxlen", 1, "", [name])]
    assert get_all(channel, name) == [b"2", b"3", b"4"]


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_what_a_free_consumer_takes_makes_no_queue(
    rabbit: Rabbit, channel: Any, connection: Any, name: str, overflow: str
) -> None:
    """However fast it is published."""
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 1, "x-overflow": overflow})
    inbox = Inbox(channel, name, auto_ack=True)
    publisher = pika.BlockingConnection(pika.URLParameters(rabbit.url))
    publish(publisher.channel(), name, *(b"%d" % number for number in range(100)))
    publisher.close()
    wait(lambda: len(inbox) == 100, connection)
    assert inbox.bodies == [b"%d" % number for number in range(100)]


def test_held_messages_do_not_count_for_the_length(channel: Any, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 2})
    publish(channel, name, b"a", b"b")
    held = [channel.basic_get(name)[0].delivery_tag for _ in range(2)]
    publish(channel, name, b"c", b"d")
    assert count(channel, name) == 2
    channel.basic_ack(held[-1], multiple=True)
    assert get_all(channel, name) == [b"c", b"d"]


def test_largest_queue(channel: Any, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length-bytes": 25})
    publish(channel, name, b"a" * 10, b"b" * 10, b"c" * 10)
    assert get_all(channel, name) == [b"b" * 10, b"c" * 10]


def test_queue_that_refuses(channel: Any, name: str) -> None:
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish(channel, name, b"a", b"b")
    for _ in range(2):
        with pytest.raises(NackError):
            publish(channel, name, b"c")
    assert get_all(channel, name) == [b"a", b"b"]
    publish(channel, name, b"d")
    assert get_all(channel, name) == [b"d"]


def test_queue_that_refuses_by_its_size(channel: Any, name: str) -> None:
    """What would make it larger than it may be, not only what comes after that."""
    arguments = {"x-max-length-bytes": 18, "x-overflow": "reject-publish"}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    with pytest.raises(NackError):
        publish(channel, name, b"larger than the queue")
    publish(channel, name, b"a" * 14)
    with pytest.raises(NackError):
        publish(channel, name, b"b" * 14)
    assert get_all(channel, name) == [b"a" * 14]


def test_queue_that_refuses_and_dead_letters(channel: Any, name: str) -> None:
    dead, exchange = dead_letter_queue(channel, name)
    arguments = {
        "x-max-length": 1,
        "x-overflow": "reject-publish-dlx",
        "x-dead-letter-exchange": exchange,
    }
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish(channel, name, b"a")
    with pytest.raises(NackError):
        publish(channel, name, b"b")
    [found] = take(channel, dead, 1)
    assert (found.body, deaths(found)[0][1]) == (b"b", "maxlen")


def test_priorities(channel: Any, connection: Any, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-priority": 5})
    for number, priority in enumerate([1, 5, None, 3, 5, 0, 9, 1]):
        channel.basic_publish("", name, b"%d" % number, BasicProperties(priority=priority), mandatory=True)
    wait(lambda: count(channel, name) == 8, connection)
    assert get_all(channel, name) == [b"1", b"4", b"6", b"3", b"0", b"7", b"2", b"5"]


def test_requeued_message_keeps_its_priority(channel: Any, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-priority": 5})
    publish(channel, name, b"low", priority=1)
    publish(channel, name, b"high", priority=5)
    method, _, body = channel.basic_get(name)
    assert body == b"high"
    publish(channel, name, b"also high", priority=5)
    channel.basic_nack(method.delivery_tag, requeue=True)
    assert get_all(channel, name) == [b"high", b"also high", b"low"]


def test_priorities_reach_consumers(channel: Any, connection: Any, name: str) -> None:
    """What waits while a consumer is busy comes by priority."""
    channel.queue_declare(name, exclusive=True, arguments={"x-max-priority": 3})
    consumer = connection.channel()
    consumer.basic_qos(prefetch_count=1)
    inbox = Inbox(consumer, name)
    publish(channel, name, b"first", priority=0)
    wait(lambda: len(inbox) == 1, connection)
    for priority in (1, 3, 2):
        publish(channel, name, b"%d" % priority, priority=priority)
    for _ in range(3):
        number = len(inbox)
        consumer.basic_ack(inbox[-1].method.delivery_tag)
        wait(lambda number=number: len(inbox) > number, connection)  # type: ignore[misc]
    assert inbox.bodies == [b"first", b"3", b"2", b"1"]


def test_priorities_expire_too(channel: Any, name: str) -> None:
    dead, exchange = dead_letter_queue(channel, name)
    arguments = {"x-max-priority": 3, "x-dead-letter-exchange": exchange, "x-message-ttl": 20}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    for priority in (1, 3, 0):
        publish(channel, name, b"%d" % priority, priority=priority)
    assert {each.body for each in take(channel, dead, 3)} == {b"0", b"1", b"3"}
    assert get(channel, name) is None
