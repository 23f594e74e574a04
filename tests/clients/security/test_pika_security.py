"""pika with TLS and logins, unmodified."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from tests.clients.security.conftest import USERS, Secured

ACCESS_REFUSED = 403


def parameters(
    secured: Secured, user: str = "alice", password: str = "", **more: Any
) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(
        "127.0.0.1",
        secured.amqp_port,
        credentials=pika.PlainCredentials(user, password or USERS[user]),
        ssl_options=pika.SSLOptions(ssl.create_default_context(cafile=secured.ca), "127.0.0.1"),
        **more,
    )


@contextmanager
def channel(secured: Secured, user: str = "alice") -> Iterator[Any]:
    connection = pika.BlockingConnection(parameters(secured, user))
    try:
        yield connection.channel()
    finally:
        connection.close()


def test_there_and_back(secured: Secured, name: str) -> None:
    with channel(secured) as own:
        own.confirm_delivery()
        own.queue_declare(name, durable=True)
        own.basic_publish("", name, b"hello", mandatory=True)
        _, _, body = own.basic_get(name, auto_ack=True)
        assert body == b"hello"


def test_a_large_message(secured: Secured, name: str) -> None:
    with channel(secured) as own:
        own.queue_declare(name)
        own.basic_publish("", name, b"x" * 500_000)
        method, _, body = own.basic_get(name)
        assert body == b"x" * 500_000
        own.basic_ack(method.delivery_tag)


def test_a_wrong_password(secured: Secured) -> None:
    with pytest.raises(ProbableAuthenticationError, match="ACCESS_REFUSED"):
        pika.BlockingConnection(parameters(secured, password="guessed"))


def test_the_guest_of_rabbitmq_is_nobody_here(secured: Secured) -> None:
    with pytest.raises(ProbableAuthenticationError):
        pika.BlockingConnection(parameters(secured, "guest", "guest"))


def test_a_certificate_that_has_expired(expired: Secured) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        pika.BlockingConnection(parameters(expired))


def test_a_virtual_host_without_permission(secured: Secured) -> None:
    with pytest.raises((ProbableAccessDeniedError, AMQPConnectionError)) as caught:
        pika.BlockingConnection(parameters(secured, virtual_host="other"))
    assert "530" in str(caught.value) or "NOT_ALLOWED" in str(caught.value)


@pytest.mark.parametrize(
    "forbidden",
    [
        lambda own: own.queue_declare("not-hers-either"),
        lambda own: own.basic_get("not-hers"),
        lambda own: own.basic_consume("not-hers", print),
        lambda own: own.queue_delete("not-hers"),
        lambda own: own.queue_purge("not-hers"),
        lambda own: own.exchange_declare("not-hers-exchange"),
    ],
    ids=["declare", "get", "consume", "delete", "purge", "exchange"],
)
def test_without_permission(secured: Secured, forbidden: Any) -> None:
    with channel(secured, "admin") as admin:
        admin.queue_declare("not-hers", durable=True)
    with channel(secured) as own, pytest.raises(ChannelClosedByBroker) as caught:
        forbidden(own)
    assert caught.value.reply_code == ACCESS_REFUSED
    assert caught.value.reply_text.startswith("ACCESS_REFUSED")


def test_publishing_without_permission(secured: Secured) -> None:
    with channel(secured, "admin") as admin:
        admin.queue_declare("not-hers", durable=True)
    with channel(secured) as own:
        own.confirm_delivery()
        with pytest.raises(ChannelClosedByBroker) as caught:
            own.basic_publish("", "not-hers", b"hello")
        assert caught.value.reply_code == ACCESS_REFUSED


def test_an_answer_needs_no_permission(secured: Secured) -> None:
    """A queue that the broker names belongs to its connection, which is how calls get their answers."""
    with channel(secured) as own:
        answers = own.queue_declare("", exclusive=True).method.queue
        own.confirm_delivery()
        own.basic_publish("", answers, b"answer")
        assert own.basic_get(answers, auto_ack=True)[2] == b"answer"


def test_kafka_clients_and_rabbits_are_the_same_users(secured: Secured, name: str) -> None:
    with channel(secured) as own, secured.client("alice") as client:
        own.queue_declare(name, durable=True)
        with client.producer(name) as producer:
            producer.send(b"from Kafka")
        for _, _, body in own.consume(name, auto_ack=True, inactivity_timeout=20):
            assert body == b"from Kafka"
            break
        own.cancel()
