"""How messages reach consumers and how they are settled, by pika's blocking connection."""

from typing import Any

import pika
import pytest
from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker

from tests.clients.amqp.blocking import Inbox, count, get, get_all, publish, settle, take, wait
from tests.clients.amqp.rabbit import Rabbit

FRAME = 131_072


@pytest.fixture
def queue(channel: Any, name: str) -> str:
    channel.queue_declare(name, exclusive=True)
    return name


def test_every_property_comes_back(channel: Any, queue: str) -> None:
    properties = BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={
            "text": "wörter",
            "number": 42,
            "negative": -1,
            "large": 2**40,
            "bytes": b"\x00\xff",
            "truth": True,
            "nothing": None,
            "list": ["a", 1, {"deep": [False]}],
            "table": {"inner": {"most": "x"}},
        },
        delivery_mode=2,
        priority=7,
        correlation_id="correlation",
        reply_to="somewhere",
        expiration="600000",
        message_id="message",
        timestamp=1_700_000_000,
        type="kind",
        user_id="guest",
        app_id="application",
        cluster_id="cluster",
    )
    channel.basic_publish("", queue, b"body", properties, mandatory=True)
    found = get(channel, queue)
    assert found is not None
    assert found.properties == properties
    assert (found.method.exchange, found.method.routing_key) == ("", queue)
    assert (found.method.redelivered, found.method.message_count) == (False, 0)


def test_no_properties(channel: Any, queue: str) -> None:
    channel.basic_publish("", queue, b"body", mandatory=True)
    found = get(channel, queue)
    assert found is not None
    assert found.properties == BasicProperties()


@pytest.mark.parametrize("size", [0, 1, FRAME - 9, FRAME - 8, FRAME - 7, FRAME, 5_000_000])
def test_body_sizes(channel: Any, queue: str, size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    publish(channel, queue, body)
    [found] = take(channel, queue, 1)
    assert found.body == body


def test_work_is_shared_and_done_once(rabbit: Rabbit, channel: Any, connection: Any, name: str) -> None:
    channel.queue_declare(name, auto_delete=True)
    other = pika.BlockingConnection(pika.URLParameters(rabbit.url))
    second = other.channel()
    for worker in (channel, second):
        worker.basic_qos(prefetch_count=1)
    one, two = Inbox(channel, name, ack=True), Inbox(second, name, ack=True)
    publisher = connection.channel()
    publish(publisher, name, *(b"%d" % number for number in range(50)))
    wait(lambda: len(one) + len(two) >= 50, connection, other, what="all of the work")
    assert sorted(one.bodies + two.bodies) == sorted(b"%d" % number for number in range(50))
    assert one and two
    other.close()


def test_prefetch_keeps_work_for_those_who_are_free(
    rabbit: Rabbit, channel: Any, connection: Any, name: str
) -> None:
    """A consumer that holds what it may hold gets no more; the other gets the rest."""
    channel.queue_declare(name, auto_delete=True)
    other = pika.BlockingConnection(pika.URLParameters(rabbit.url))
    second = other.channel()
    channel.basic_qos(prefetch_count=2)
    second.basic_qos(prefetch_count=1)
    busy = Inbox(channel, name)
    free = Inbox(second, name, ack=True)
    publisher = connection.channel()
    publish(publisher, name, *(b"%d" % number for number in range(20)))
    wait(lambda: len(free) == 18, connection, other, what="that the free one does the rest")
    settle(channel, name)
    assert len(busy) == 2
    channel.basic_ack(busy[-1].method.delivery_tag, multiple=True)
    publish(publisher, name, b"more", b"and more")
    wait(lambda: len(busy) + len(free) == 22, connection, other)
    other.close()


def test_unlimited_prefetch(channel: Any, connection: Any, queue: str) -> None:
    """All of it is handed out though nothing is acknowledged."""
    publisher = connection.channel()
    publish(publisher, queue, *(b"%d" % number for number in range(3000)))
    inbox = Inbox(channel, queue)
    wait(lambda: len(inbox) == 3000, connection, what="3000 deliveries")
    assert inbox.bodies == [b"%d" % number for number in range(3000)]
    assert [each.method.delivery_tag for each in inbox] == list(range(1, 3001))


def test_prefetch_of_the_channel(channel: Any, connection: Any, name: str) -> None:
    """With the global flag, all consumers of a channel share it."""
    queues = [f"{name}-{number}" for number in range(2)]
    publisher = connection.channel()
    for queue in queues:
        channel.queue_declare(queue, exclusive=True)
        publish(publisher, queue, b"a", b"b", b"c")
    channel.basic_qos(prefetch_count=4, global_qos=True)
    inboxes = [Inbox(channel, queue) for queue in queues]
    wait(lambda: sum(map(len, inboxes)) == 4, connection)
    for queue in queues:
        settle(channel, queue)
    assert sum(map(len, inboxes)) == 4
    channel.basic_ack(0, multiple=True)
    wait(lambda: sum(map(len, inboxes)) == 6, connection)


def test_requeued_messages_keep_their_place(channel: Any, connection: Any, queue: str) -> None:
    publish(channel, queue, b"0", b"1", b"2", b"3", b"4")
    held = [channel.basic_get(queue)[0].delivery_tag for _ in range(3)]
    channel.basic_nack(held[1], requeue=True)
    channel.basic_reject(held[0], requeue=True)
    wait(lambda: count(channel, queue) == 4, connection)
    channel.basic_nack(held[2], requeue=True)
    found = [get(channel, queue) for _ in range(5)]
    assert [each and each.body for each in found] == [b"0", b"1", b"2", b"3", b"4"]
    assert [each and each.method.redelivered for each in found] == [True, True, True, False, False]


def test_what_a_closed_channel_held_goes_back_in_order(channel: Any, connection: Any, queue: str) -> None:
    publish(channel, queue, *(b"%d" % number for number in range(10)))
    holder = connection.channel()
    inbox = Inbox(holder, queue)
    wait(lambda: len(inbox) == 10, connection)
    holder.basic_ack(inbox[4].method.delivery_tag)
    holder.close()
    found = take(channel, queue, 9)
    assert [each.body for each in found] == [b"%d" % number for number in range(10) if number != 4]
    assert all(each.method.redelivered for each in found)


def test_recover(channel: Any, connection: Any, queue: str) -> None:
    publish(channel, queue, b"a", b"b")
    inbox = Inbox(channel, queue)
    wait(lambda: len(inbox) == 2, connection)
    channel.basic_ack(inbox[0].method.delivery_tag)
    channel.basic_recover(requeue=True)
    wait(lambda: len(inbox) == 3, connection)
    assert (inbox[2].body, inbox[2].method.redelivered) == (b"b", True)


def test_acknowledge_several_at_once(channel: Any, queue: str) -> None:
    publish(channel, queue, *(b"%d" % number for number in range(6)))
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(6)]
    channel.basic_ack(tags[2], multiple=True)
    channel.basic_nack(tags[4], multiple=True, requeue=True)
    assert get_all(channel, queue) == [b"3", b"4"]
    channel.basic_nack(0, multiple=True, requeue=True)
    assert get_all(channel, queue) == [b"5"]


@pytest.mark.parametrize("again", [False, True])
def test_acknowledge_what_is_not_there(channel: Any, connection: Any, queue: str, again: bool) -> None:
    publish(channel, queue, b"x")
    tag = channel.basic_get(queue)[0].delivery_tag
    if again:
        channel.basic_ack(tag)
    channel.basic_ack(tag if again else 99)
    with pytest.raises(ChannelClosedByBroker) as caught:
        count(channel, queue)
    assert caught.value.reply_code == 406
    assert "unknown delivery tag" in caught.value.reply_text


def test_without_acknowledgement(channel: Any, connection: Any, queue: str) -> None:
    publisher = connection.channel()
    publish(publisher, queue, b"a", b"b")
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, queue, auto_ack=True)
    wait(lambda: len(inbox) == 2, connection)
    channel.close()
    assert count(publisher, queue) == 0


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 10}], ids=["plain", "priorities"])
def test_consumer_gets_together_what_is_there(
    channel: Any, connection: Any, name: str, arguments: dict[str, Any]
) -> None:
    """When the first has come, the others are on their way: none is left behind when the consumer goes then.

    kombu's own tests take it for granted.
    """
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    for number in range(5):
        publish(channel, name, b"%d" % number, priority=number % 3)
    inbox = Inbox(channel, name, auto_ack=True)
    wait(lambda: inbox, connection)
    pending = channel.basic_cancel(inbox.tag)
    assert len(inbox) + len(pending) == 5


def test_cancelled_consumer_keeps_what_it_holds(channel: Any, connection: Any, queue: str) -> None:
    publish(channel, queue, b"a")
    inbox = Inbox(channel, queue)
    wait(lambda: len(inbox) == 1, connection)
    channel.basic_cancel(inbox.tag)
    publish(channel, queue, b"b")
    assert get_all(channel, queue) == [b"b"]
    channel.basic_ack(inbox[0].method.delivery_tag)
    assert get_all(channel, queue) == []


def test_consumer_is_told_that_its_queue_is_gone(channel: Any, connection: Any, queue: str) -> None:
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    inbox = Inbox(channel, queue)
    connection.channel().queue_delete(queue)
    wait(lambda: cancelled == [inbox.tag], connection, what="the notice")


def test_the_notice_ends_a_generator(channel: Any, connection: Any, queue: str) -> None:
    publish(channel, queue, b"a")
    consuming = channel.consume(queue, auto_ack=True)
    assert next(consuming)[2] == b"a"
    connection.channel().queue_delete(queue)
    assert list(consuming) == []


def test_exclusive_consumer(channel: Any, connection: Any, queue: str) -> None:
    Inbox(channel, queue, exclusive=True)
    other = connection.channel()
    with pytest.raises(ChannelClosedByBroker) as caught:
        Inbox(other, queue)
    assert caught.value.reply_code == 403


def test_consumer_tags(channel: Any, connection: Any, queue: str) -> None:
    assert Inbox(channel, queue, consumer_tag="mine").tag == "mine"
    assert Inbox(channel, queue).tag != Inbox(channel, queue).tag
    other = connection.channel()
    assert Inbox(other, queue, consumer_tag="mine").tag == "mine"
    assert count_consumers(channel, queue) == 4
    channel.basic_cancel("mine")
    assert count_consumers(channel, queue) == 3


def count_consumers(channel: Any, queue: str) -> int:
    consumers: int = channel.queue_declare(queue, passive=True).method.consumer_count
    return consumers


def test_consumers_with_priority_come_first(channel: Any, connection: Any, queue: str) -> None:
    publisher = connection.channel()
    low = Inbox(channel, queue)
    preferred = connection.channel()
    preferred.basic_qos(prefetch_count=3)
    high = Inbox(preferred, queue, arguments={"x-priority": 10})
    publish(publisher, queue, *(b"%d" % number for number in range(5)))
    wait(lambda: len(low) + len(high) == 5, connection)
    assert (high.bodies, low.bodies) == ([b"0", b"1", b"2"], [b"3", b"4"])


def test_single_active_consumer(channel: Any, connection: Any, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-single-active-consumer": True})
    first_channel, second_channel = connection.channel(), connection.channel()
    first = Inbox(first_channel, name, ack=True)
    second = Inbox(second_channel, name, ack=True)
    publish(channel, name, b"a", b"b", b"c")
    wait(lambda: len(first) == 3, connection)
    assert second == []
    first_channel.close()
    publish(channel, name, b"d")
    wait(lambda: len(second) == 1, connection, what="that the next one takes over")
    assert second.bodies == [b"d"]


def test_error_of_a_channel_leaves_the_others_alone(channel: Any, connection: Any, queue: str) -> None:
    with pytest.raises(ChannelClosedByBroker):
        connection.channel().queue_declare(f"{queue}-missing", passive=True)
    publish(channel, queue, b"still here")
    assert get_all(channel, queue) == [b"still here"]
