"""aiokafka with TLS and SASL, unmodified."""

import ssl
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    AuthenticationFailedError,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    TopicAuthorizationFailedError,
)

from tests.clients.security.conftest import USERS, Secured

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def config(
    secured: Secured, user: str = "alice", mechanism: str = "SCRAM-SHA-256", **more: Any
) -> dict[str, Any]:
    return {
        "bootstrap_servers": secured.kafka,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=secured.ca),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": USERS.get(user, "-"),
        **more,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_there_and_back(secured: Secured, topic: str, mechanism: str) -> None:
    own = config(secured, mechanism=mechanism)
    async with AIOKafkaProducer(**own) as producer:
        await producer.send_and_wait(topic, b"hello")
    async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **own) as consumer:
        assert (await consumer.getone()).value == b"hello"
        await consumer.commit()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password(secured: Secured, mechanism: str) -> None:
    producer = AIOKafkaProducer(**config(secured, mechanism=mechanism, sasl_plain_password="guessed"))
    with pytest.raises((AuthenticationFailedError, KafkaConnectionError)):
        await producer.start()
    await producer.stop()


async def test_a_certificate_that_has_expired(expired: Secured, caplog: pytest.LogCaptureFixture) -> None:
    producer = AIOKafkaProducer(**config(expired))
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    await producer.stop()
    assert "certificate has expired" in caplog.text


async def test_writing_without_permission(secured: Secured) -> None:
    async with AIOKafkaProducer(**config(secured, "bob")) as producer:
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait("not-hers", b"hello")


async def test_reading_without_permission(secured: Secured) -> None:
    async with AIOKafkaConsumer(auto_offset_reset="earliest", **config(secured)) as consumer:
        consumer.assign([TopicPartition("seen", 0)])
        with pytest.raises(TopicAuthorizationFailedError):
            await consumer.getone()


async def test_joining_without_permission(secured: Secured, topic: str) -> None:
    consumer = AIOKafkaConsumer(topic, group_id="not-hers", **config(secured))
    with pytest.raises(GroupAuthorizationFailedError):
        await consumer.start()
        await consumer.getone()
    await consumer.stop()
