"""Logins and permissions with pika: what its users see is what they see of RabbitMQ."""

from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAuthenticationError,
)

from tests.clients.amqp.blocking import Inbox, get_all, publish, wait
from tests.clients.amqp.guarded import PASSWORD, Guarded, guarded_broker


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(tmp_path_factory.mktemp("access"), namespaces=("/", "staging")) as made:
        yield made


@pytest.fixture
def connect(guarded: Guarded) -> Iterator[Callable[..., Any]]:
    """Connections that are closed in the end."""
    made: list[Any] = []

    def connected(user: str, password: str = PASSWORD, vhost: str = "/") -> Any:
        credentials = pika.PlainCredentials(user, password)
        parameters = pika.ConnectionParameters(guarded.host, guarded.port, vhost, credentials)
        made.append(pika.BlockingConnection(parameters))
        return made[-1]

    yield connected
    for each in made:
        if each.is_open:
            each.close()


@pytest.fixture
def queue(connect: Callable[..., Any], name: str) -> str:
    """Of the administrator."""
    connect("admin").channel().queue_declare(name)
    return name


def refusal(attempt: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ChannelClosedByBroker) as caught:
        attempt()
    return caught.value.reply_code, caught.value.reply_text


@pytest.mark.parametrize(
    ("user", "password"), [("admin", "wrong"), ("admin", ""), ("nobody", PASSWORD), ("guest", "guest")]
)
def test_a_wrong_password(connect: Callable[..., Any], user: str, password: str) -> None:
    with pytest.raises(ProbableAuthenticationError) as caught:
        connect(user, password)
    assert isinstance(caught.value, AMQPConnectionError)
    assert "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN." in str(caught.value)


def test_a_virtual_host_of_others(guarded: Guarded, connect: Callable[..., Any], name: str) -> None:
    user = guarded.user(name, read="orders")
    with pytest.raises(AMQPConnectionError) as caught:
        connect(user, vhost="staging")
    assert f"NOT_ALLOWED - access to vhost 'staging' refused for user '{user}'" in str(caught.value)
    guarded.user(user, write="staging..*")
    connect(user, vhost="staging").channel().basic_publish("", "unheard", b"")


def test_missing_permissions(guarded: Guarded, connect: Callable[..., Any], queue: str, name: str) -> None:
    user = guarded.user(f"user-{name}")
    connection = connect(user)
    where = f"in vhost '/' refused for user '{user}'"

    def refused(method: str, *args: Any, **options: Any) -> tuple[int, str]:
        channel = connection.channel()
        return refusal(lambda: getattr(channel, method)(*args, **options))

    assert refused("queue_declare", "new") == (
        403,
        f"ACCESS_REFUSED - configure access to queue 'new' {where}",
    )
    assert refused("exchange_declare", "new") == (
        403,
        f"ACCESS_REFUSED - configure access to exchange 'new' {where}",
    )
    assert refused("basic_get", queue) == (403, f"ACCESS_REFUSED - read access to queue '{queue}' {where}")
    assert refused("basic_consume", queue, print)[0] == 403
    assert refused("queue_purge", queue)[0] == 403
    assert refused("queue_delete", queue)[0] == 403
    assert refused("queue_bind", queue, "amq.topic", "#")[0] == 403
    channel = connection.channel()
    channel.confirm_delivery()
    assert refusal(lambda: channel.basic_publish("amq.topic", "key", b"x")) == (
        403,
        f"ACCESS_REFUSED - write access to exchange 'amq.topic' {where}",
    )
    assert connection.is_open


def test_enough_permissions(guarded: Guarded, connect: Callable[..., Any], queue: str, name: str) -> None:
    writer = connect(guarded.user(f"writer-{name}", write=queue)).channel()
    writer.confirm_delivery()
    publish(writer, queue, b"a", b"b")
    assert refusal(lambda: writer.basic_get(queue))[0] == 403
    reader = connect(guarded.user(f"reader-{name}", read=queue)).channel()
    assert get_all(reader, queue) == [b"a", b"b"]
    reader.confirm_delivery()
    assert refusal(lambda: publish(reader, queue, b"c"))[0] == 403


@pytest.mark.parametrize("direct", [True, False], ids=["direct reply-to", "reply queue"])
def test_remote_calls_with_little_permission(
    guarded: Guarded, connect: Callable[..., Any], queue: str, name: str, direct: bool
) -> None:
    client = connect(guarded.user(f"client-{name}", write=queue))
    server = connect(guarded.user(f"server-{name}", read=queue, **({} if direct else {"write": "amq.gen-*"})))
    asking, answering = client.channel(), server.channel()
    reply_to = "amq.rabbitmq.reply-to"
    if not direct:
        reply_to = asking.queue_declare("", exclusive=True).method.queue
    replies = Inbox(asking, reply_to, auto_ack=True)

    def answer(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", properties.reply_to, body.upper())

    answering.basic_consume(queue, answer, auto_ack=True)
    publish(asking, queue, b"hello", reply_to=reply_to)
    wait(lambda: replies, client, server, what="an answer")
    assert replies.bodies == [b"HELLO"]


def test_a_user_who_is_deleted(guarded: Guarded, connect: Callable[..., Any], name: str) -> None:
    connection = connect(guarded.user(name))
    guarded.run(guarded.access.users.delete(name))
    with pytest.raises(ConnectionClosedByBroker) as caught:
        wait(lambda: False, connection)
    assert (caught.value.reply_code, caught.value.reply_text) == (
        320,
        f"CONNECTION_FORCED - user '{name}' was deleted",
    )
    with pytest.raises(ProbableAuthenticationError):
        connect(name)


def test_a_new_secret(guarded: Guarded, connect: Callable[..., Any], name: str) -> None:
    connection = connect(guarded.user(name))
    connection.update_secret(PASSWORD, "it is about to end")
    with pytest.raises(ConnectionClosedByBroker, match="New secret was refused"):
        connection.update_secret("wrong", "it has ended")


def test_a_message_in_the_name_of_somebody_else(connect: Callable[..., Any], queue: str) -> None:
    channel = connect("admin").channel()
    channel.confirm_delivery()
    publish(channel, queue, b"mine", user_id="admin")
    assert refusal(lambda: publish(channel, queue, b"yours", user_id="ann"))[0] == 406
