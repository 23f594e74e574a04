"""What queues are declared with, how long they live and whose they are, by pika's blocking connection."""

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.clients.amqp.blocking import Inbox, count, get_all, publish, wait
from tests.clients.amqp.rabbit import Rabbit


def refusal(attempt: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ChannelClosedByBroker) as caught:
        attempt()
    return caught.value.reply_code, caught.value.reply_text


def is_there(connection: Any, queue: str) -> bool:
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as error:
        assert error.reply_code == 404
        return False
    channel.close()
    return True


@pytest.fixture
def other(rabbit: Rabbit) -> Any:
    """A second connection."""
    made = pika.BlockingConnection(pika.URLParameters(rabbit.url))
    yield made
    if made.is_open:
        made.close()


def test_counts(channel: Any, name: str) -> None:
    declared = channel.queue_declare(name, exclusive=True).method
    assert (declared.queue, declared.message_count, declared.consumer_count) == (name, 0, 0)
    publish(channel, name, b"a", b"b")
    again = channel.queue_declare(name, exclusive=True).method
    assert (again.queue, again.message_count, again.consumer_count) == (name, 2, 0)


def test_named_by_the_server(channel: Any) -> None:
    names = {channel.queue_declare("", exclusive=True).method.queue for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("amq.gen-") for name in names)
    last = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind("", "amq.direct", "key of the last")  # the empty name means the last one declared
    channel.basic_publish("amq.direct", "key of the last", b"x", mandatory=True)
    assert get_all(channel, last) == [b"x"]


def test_passive_declaration_of_what_is_not_there(connection: Any, name: str) -> None:
    code, text = refusal(lambda: connection.channel().queue_declare(name, passive=True))
    assert (code, text) == (404, f"NOT_FOUND - no queue '{name}' in vhost '/'")
    code, text = refusal(lambda: connection.channel().exchange_declare(name, passive=True))
    assert (code, text) == (404, f"NOT_FOUND - no exchange '{name}' in vhost '/'")


def test_consume_and_get_what_is_not_there(connection: Any, name: str) -> None:
    assert refusal(lambda: connection.channel().basic_get(name))[0] == 404
    assert refusal(lambda: Inbox(connection.channel(), name))[0] == 404
    assert refusal(lambda: connection.channel().queue_purge(name))[0] == 404


@pytest.mark.parametrize(
    ("otherwise", "argument"),
    [
        ({"durable": True}, "durable"),
        ({"auto_delete": True}, "auto_delete"),
        ({"arguments": {"x-message-ttl": 2000}}, "x-message-ttl"),
        ({"arguments": {}}, "x-message-ttl"),
        ({"arguments": {"x-message-ttl": 1000, "x-max-length": 5}}, "x-max-length"),
        ({"arguments": {"x-message-ttl": 1000, "x-dead-letter-exchange": ""}}, "x-dead-letter-exchange"),
    ],
    ids=str,
)
def test_declared_otherwise(connection: Any, name: str, otherwise: dict[str, Any], argument: str) -> None:
    first: dict[str, Any] = {"durable": False, "arguments": {"x-message-ttl": 1000}, "auto_delete": False}
    connection.channel().queue_declare(name, **first)
    connection.channel().queue_declare(name, **first)
    code, text = refusal(lambda: connection.channel().queue_declare(name, **(first | otherwise)))
    assert code == 406
    assert f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue '{name}' in vhost '/'" in text
    connection.channel().queue_delete(name)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": -1},
        {"x-message-ttl": "soon"},
        {"x-expires": 0},
        {"x-max-length": -1},
        {"x-max-priority": 256},
        {"x-overflow": "explode"},
        {"x-dead-letter-routing-key": "key"},
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(connection: Any, name: str, arguments: dict[str, Any]) -> None:
    code, _ = refusal(lambda: connection.channel().queue_declare(name, arguments=arguments))
    assert code == 406
    assert not is_there(connection, name)


def test_reserved_names(connection: Any) -> None:
    assert refusal(lambda: connection.channel().queue_declare("amq.mine"))[0] == 403


def test_purge(channel: Any, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    publish(channel, name, b"a", b"b", b"held")
    publish(channel, name, b"c")
    tag = channel.basic_get(name)[0].delivery_tag
    assert channel.queue_purge(name).method.message_count == 3
    assert count(channel, name) == 0
    channel.basic_nack(tag, requeue=True)
    assert get_all(channel, name) == [b"a"]


def test_delete(connection: Any, channel: Any, name: str) -> None:
    channel.queue_declare(name)
    publish(channel, name, b"a", b"b")
    assert channel.queue_delete(name).method.message_count == 2
    assert channel.queue_delete(name).method.message_count == 0, "there is nothing wrong with it"
    assert not is_there(connection, name)
    channel.queue_declare(name, exclusive=True)
    assert count(channel, name) == 0, "a new one is empty"


def test_delete_only_if(connection: Any, channel: Any, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    publish(channel, name, b"a")
    assert refusal(lambda: connection.channel().queue_delete(name, if_empty=True))[0] == 406
    consumer = connection.channel()
    Inbox(consumer, name, auto_ack=True)
    assert refusal(lambda: connection.channel().queue_delete(name, if_unused=True))[0] == 406
    consumer.close()
    channel.queue_delete(name, if_unused=True, if_empty=True)
    assert not is_there(connection, name)


def test_exclusive_queue(connection: Any, channel: Any, other: Any, name: str) -> None:
    """Nobody else may touch it, and it goes with its connection."""
    channel.queue_declare(name, exclusive=True)
    publish(channel, name, b"mine")
    attempts: list[Callable[[Any], object]] = [
        lambda stranger: stranger.queue_declare(name, exclusive=True),
        lambda stranger: stranger.queue_declare(name, passive=True),
        lambda stranger: stranger.basic_get(name),
        lambda stranger: stranger.queue_bind(name, "amq.fanout"),
        lambda stranger: stranger.queue_purge(name),
        lambda stranger: stranger.queue_delete(name),
        lambda stranger: Inbox(stranger, name),
    ]
    for attempt in attempts:
        code, text = refusal(lambda attempt=attempt: attempt(other.channel()))  # type: ignore[misc]
        assert code == 405
        assert f"cannot obtain exclusive access to locked queue '{name}'" in text
    writer = other.channel()
    writer.confirm_delivery()
    publish(writer, name, b"but anybody may write to it")
    assert get_all(channel, name) == [b"mine", b"but anybody may write to it"]
    connection.close()
    wait(lambda: not is_there(other, name), other)


def test_queue_that_deletes_itself(connection: Any, other: Any, name: str) -> None:
    """With its last consumer, not before it had one."""
    channel = connection.channel()
    channel.queue_declare(name, auto_delete=True)
    assert is_there(other, name)
    first, second = Inbox(channel, name), Inbox(channel, name)
    channel.basic_cancel(first.tag)
    assert is_there(other, name)
    channel.basic_cancel(second.tag)
    wait(lambda: not is_there(other, name), other)


def test_queue_deletes_itself_when_its_consumer_is_lost(connection: Any, other: Any, name: str) -> None:
    channel = connection.channel()
    channel.queue_declare(name, auto_delete=True)
    Inbox(channel, name)
    connection.close()
    wait(lambda: not is_there(other, name), other)


def is_gone(connection: Any, exchange: str) -> bool:
    """An exchange that goes with its last binding tells of a queue; to look for that would be to use it."""
    try:
        connection.channel().exchange_declare(exchange, passive=True)
    except ChannelClosedByBroker:
        return True
    return False


def test_queue_that_expires(channel: Any, connection: Any, name: str) -> None:
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.queue_declare(name, arguments={"x-expires": 1000})
    channel.queue_bind(name, name)
    assert not is_gone(connection, name)
    wait(lambda: is_gone(connection, name), connection)
    assert not is_there(connection, name)


def test_queue_that_is_used_does_not_expire(channel: Any, connection: Any, name: str) -> None:
    """It is there when another has gone that would have lived longer."""
    used, idle = f"{name}-used", f"{name}-idle"
    channel.queue_declare(used, arguments={"x-expires": 1000})
    inbox = Inbox(channel, used)
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.queue_declare(idle, arguments={"x-expires": 1500})
    channel.queue_bind(idle, name)
    wait(lambda: is_gone(connection, name), connection)
    publish(channel, used, b"still here")
    wait(lambda: inbox.bodies == [b"still here"], connection)
    channel.queue_delete(used)


def test_virtual_host_that_is_not_there(rabbit: Rabbit) -> None:
    parameters = pika.ConnectionParameters(rabbit.host, rabbit.port, "nowhere")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(parameters)


def test_wrong_password(rabbit: Rabbit) -> None:
    parameters = pika.ConnectionParameters(
        rabbit.host, rabbit.port, credentials=pika.PlainCredentials("guest", "wrong")
    )
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)
