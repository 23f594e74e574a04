"""Logins and permissions with aio-pika: what its users see is what they see of RabbitMQ."""

import asyncio
from collections.abc import Iterator

import aio_pika
import pytest
from aio_pika import Message
from aio_pika.exceptions import ProbableAuthenticationError
from aio_pika.patterns import RPC
from aiormq.exceptions import ChannelAccessRefused

from tests.clients.amqp.blocking import SECONDS
from tests.clients.amqp.guarded import Guarded, guarded_broker


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(tmp_path_factory.mktemp("access")) as made:
        yield made


async def test_a_wrong_password(guarded: Guarded) -> None:
    with pytest.raises(ProbableAuthenticationError, match="ACCESS_REFUSED"):
        await aio_pika.connect(guarded.url("admin", "wrong"))


async def test_missing_permissions(guarded: Guarded, name: str) -> None:
    user = await asyncio.to_thread(guarded.user, name)
    async with await aio_pika.connect(guarded.url(user)) as connection:
        channel = await connection.channel()
        with pytest.raises(
            ChannelAccessRefused, match="configure access to queue 'new' in vhost '/' refused"
        ):
            await channel.declare_queue("new")
        channel = await connection.channel()
        with pytest.raises(ChannelAccessRefused, match="write access to queue 'new' in vhost '/' refused"):
            await channel.default_exchange.publish(Message(b"x"), "new")


async def test_remote_calls(guarded: Guarded, name: str) -> None:
    """aio-pika's own pattern: dead letters of unanswered calls come back by an exchange."""
    permitted = {"create": "*", "read": "*", "write": "*"}
    server = await asyncio.to_thread(lambda: guarded.user(f"server-{name}", **permitted))
    client = await asyncio.to_thread(lambda: guarded.user(f"client-{name}", **permitted))
    async with (
        await aio_pika.connect(guarded.url(server)) as serving,
        await aio_pika.connect(guarded.url(client)) as calling,
    ):
        answers = await RPC.create(await serving.channel())
        await answers.register(name, doubled, auto_delete=True)
        asks = await RPC.create(await calling.channel())
        assert await asyncio.wait_for(asks.call(name, {"number": 21}), SECONDS) == 42


async def doubled(*, number: int) -> int:
    return 2 * number
