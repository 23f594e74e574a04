"""aio-pika with TLS and logins, unmodified."""

import ssl
from typing import Any

import aio_pika
import pytest
from aio_pika import Message
from aio_pika.exceptions import AMQPConnectionError, ProbableAuthenticationError
from aiormq.exceptions import ChannelAccessRefused

from tests.clients.security.conftest import USERS, Secured


async def connect(secured: Secured, user: str = "alice", password: str = "") -> Any:
    return await aio_pika.connect(
        host="127.0.0.1",
        port=secured.amqp_port,
        login=user,
        password=password or USERS[user],
        ssl=True,
        ssl_context=ssl.create_default_context(cafile=secured.ca),
    )


async def test_there_and_back(secured: Secured, name: str) -> None:
    async with await connect(secured) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(name, durable=True)
        await channel.default_exchange.publish(Message(b"hello"), name)
        message = await queue.get()
        assert message.body == b"hello"
        await message.ack()


async def test_a_wrong_password(secured: Secured) -> None:
    with pytest.raises(ProbableAuthenticationError):
        await connect(secured, password="guessed")


async def test_a_certificate_that_has_expired(expired: Secured) -> None:
    with pytest.raises((AMQPConnectionError, ssl.SSLError)) as caught:
        await connect(expired)
    assert "certificate has expired" in str(caught.value)


async def test_without_permission(secured: Secured) -> None:
    async with await connect(secured) as connection:
        channel = await connection.channel()
        with pytest.raises(ChannelAccessRefused):
            await channel.declare_queue("not-hers-either")
