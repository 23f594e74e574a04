"""Confirms, transactions and remote calls, by pika's blocking connection."""

import threading
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from tests.clients.amqp.blocking import SECONDS, Inbox, count, get, get_all, publish, wait
from tests.clients.amqp.rabbit import Rabbit

DIRECT_REPLY = "amq.rabbitmq.reply-to"


@pytest.fixture
def queue(connection: Any, name: str) -> str:
    connection.channel().queue_declare(name, exclusive=True)
    return name


def test_confirmed_message_is_in_its_queue(channel: Any, queue: str) -> None:
    for number in range(20):
        publish(channel, queue, b"%d" % number, delivery_mode=2 if number % 2 else 1)
        assert count(channel, queue) == number + 1


def test_unroutable_message_is_confirmed_too(channel: Any, name: str) -> None:
    channel.basic_publish("", f"{name}-missing", b"not mandatory")
    with pytest.raises(UnroutableError):
        channel.basic_publish("", f"{name}-missing", b"mandatory", mandatory=True)


def test_transaction(connection: Any, queue: str) -> None:
    channel, observer = connection.channel(), connection.channel()
    channel.tx_select()
    publish(channel, queue, b"a", b"b")
    channel.queue_declare(queue, passive=True)
    assert count(observer, queue) == 0
    channel.tx_commit()
    assert get_all(observer, queue) == [b"a", b"b"]


def test_transaction_that_is_rolled_back(connection: Any, queue: str) -> None:
    channel, observer = connection.channel(), connection.channel()
    channel.tx_select()
    publish(channel, queue, b"never")
    channel.tx_rollback()
    channel.tx_commit()
    assert count(observer, queue) == 0
    publish(channel, queue, b"after")
    channel.tx_commit()
    assert get_all(observer, queue) == [b"after"]


def test_acknowledgements_are_part_of_a_transaction(connection: Any, queue: str) -> None:
    publisher = connection.channel()
    publisher.confirm_delivery()
    publish(publisher, queue, b"a", b"b", b"c")
    channel = connection.channel()
    channel.tx_select()
    first, second, third = (channel.basic_get(queue)[0].delivery_tag for _ in range(3))
    channel.basic_ack(first)
    channel.tx_commit()
    channel.basic_ack(second)
    channel.tx_rollback()
    channel.basic_ack(third)
    channel.close()
    assert get_all(publisher, queue) == [b"b", b"c"], "neither was acknowledged for good"


def test_rolled_back_acknowledgement_can_be_given_again(connection: Any, queue: str) -> None:
    publisher = connection.channel()
    publisher.confirm_delivery()
    publish(publisher, queue, b"a")
    channel = connection.channel()
    channel.tx_select()
    tag = channel.basic_get(queue)[0].delivery_tag
    channel.basic_ack(tag)
    channel.tx_rollback()
    channel.basic_ack(tag)
    channel.tx_commit()
    channel.close()
    assert get_all(publisher, queue) == []


def test_transaction_of_a_channel_that_closes(connection: Any, queue: str) -> None:
    channel = connection.channel()
    channel.tx_select()
    publish(channel, queue, b"never")
    channel.close()
    assert count(connection.channel(), queue) == 0


@pytest.mark.parametrize("first", ["tx", "confirm"])
def test_transactions_and_confirms_exclude_each_other(connection: Any, first: str) -> None:
    channel = connection.channel()
    select = [channel.tx_select, channel.confirm_delivery]
    if first == "confirm":
        select.reverse()
    select[0]()
    with pytest.raises(ChannelClosedByBroker) as caught:
        select[1]()
    assert caught.value.reply_code == 406


@pytest.mark.parametrize("what", ["tx_commit", "tx_rollback"])
def test_end_of_no_transaction(connection: Any, what: str) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        getattr(connection.channel(), what)()
    assert caught.value.reply_code == 406


def test_user_id_must_be_the_users_own(channel: Any, queue: str) -> None:
    publish(channel, queue, b"x", user_id="guest")
    with pytest.raises(ChannelClosedByBroker) as caught:
        publish(channel, queue, b"x", user_id="root")
    assert caught.value.reply_code == 406


class Server(threading.Thread):
    """Answers calls with their bodies in capitals, until it is told to stop."""

    def __init__(self, rabbit: Rabbit, queue: str) -> None:
        super().__init__()
        self._connection = pika.BlockingConnection(pika.URLParameters(rabbit.url))
        self._channel = self._connection.channel()
        self._channel.queue_declare(queue, auto_delete=True)
        self._channel.basic_consume(queue, self._answer)

    def _answer(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish(
            "", properties.reply_to, body.upper(), BasicProperties(correlation_id=properties.correlation_id)
        )
        channel.basic_ack(method.delivery_tag)

    def run(self) -> None:
        self._channel.start_consuming()
        self._connection.close()

    def end(self) -> None:
        self._connection.add_callback_threadsafe(self._channel.stop_consuming)
        self.join(SECONDS)


@pytest.fixture
def server(rabbit: Rabbit, name: str) -> Iterator[str]:
    """The queue where it listens."""
    thread = Server(rabbit, f"{name}-calls")
    thread.start()
    yield f"{name}-calls"
    thread.end()


def test_remote_calls_with_a_reply_queue(connection: Any, channel: Any, server: str) -> None:
    replies = channel.queue_declare("", exclusive=True).method.queue
    inbox = Inbox(channel, replies, auto_ack=True)
    for number in range(5):
        publish(channel, server, b"call %d" % number, reply_to=replies, correlation_id=str(number))
    wait(lambda: len(inbox) == 5, connection)
    assert {(each.properties.correlation_id, each.body) for each in inbox} == {
        (str(number), b"CALL %d" % number) for number in range(5)
    }


def test_remote_calls_with_direct_reply(connection: Any, server: str) -> None:
    channel = connection.channel()
    inbox = Inbox(channel, DIRECT_REPLY, auto_ack=True)
    for number in range(5):
        publish(channel, server, b"call %d" % number, reply_to=DIRECT_REPLY, correlation_id=str(number))
    wait(lambda: len(inbox) == 5, connection)
    assert [each.body for each in inbox] == [b"CALL %d" % number for number in range(5)]


def test_direct_replies_find_their_own_channel(connection: Any, server: str) -> None:
    channels = [connection.channel() for _ in range(3)]
    inboxes = [Inbox(channel, DIRECT_REPLY, auto_ack=True) for channel in channels]
    for number, channel in enumerate(channels):
        publish(channel, server, b"from %d" % number, reply_to=DIRECT_REPLY)
    wait(lambda: all(inboxes), connection)
    assert [inbox.bodies for inbox in inboxes] == [[b"FROM %d" % number] for number in range(3)]


def test_name_that_direct_replies_go_to(connection: Any, channel: Any, queue: str) -> None:
    """It is made up by the broker, and gone when the one who asked is."""
    asking = connection.channel()
    inbox = Inbox(asking, DIRECT_REPLY, auto_ack=True)
    publish(asking, queue, b"?", reply_to=DIRECT_REPLY)
    wait(lambda: count(channel, queue) == 1, connection)
    found = get(channel, queue)
    assert found is not None
    reply_to = found.properties.reply_to
    assert reply_to.startswith(f"{DIRECT_REPLY}.")
    channel.queue_declare(reply_to, passive=True)
    channel.basic_publish("", reply_to, b"!")
    wait(lambda: inbox.bodies == [b"!"], connection)
    asking.close()
    channel.basic_publish("", reply_to, b"too late")
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare(reply_to, passive=True)
    assert caught.value.reply_code == 404


def test_direct_reply_needs_a_consumer_without_acknowledgement(connection: Any, name: str) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        Inbox(connection.channel(), DIRECT_REPLY)
    assert caught.value.reply_code == 406
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel = connection.channel()
        publish(channel, name, b"?", reply_to=DIRECT_REPLY)
        channel.queue_declare("", exclusive=True)
    assert caught.value.reply_code == 406
