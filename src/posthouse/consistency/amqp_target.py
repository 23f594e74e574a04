"""RabbitMQ, or another broker of AMQP 0-9-1, as the place that messages go to: at least once.

Such a broker does not remember what it has had. A batch of which it is not known whether it was sent is sent
again: consumers tell by the message id. A message that no queue takes comes back, and is set aside.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from struct import error as StructError
from typing import Any, Final, TypeVar

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    DeliveryError,
    ProbableAuthenticationError,
    PublishError,
)

from posthouse.client.closable import Closable
from posthouse.client.errors import BrokerSilent, BrokerUnreachable, ClientError, LoginRefused
from posthouse.consistency.message_ids import HEADER
from posthouse.consistency.outbox_table import Batch, OutboxMessage
from posthouse.consistency.refusals import MessagesRefused, TargetRefused

log = logging.getLogger(__name__)

T = TypeVar("T")

KEY_HEADER: Final = "message-key"
_SECONDS: Final = 30.0
_LONGEST_ROUTING_KEY: Final = 255
_LONGEST_HEADER_NAME: Final = 128
_NOTHING_SENT: Final = 0


class AmqpTarget(Closable):
    """Belongs to one thread, in which it has an event loop. Connects when first used."""

    def __init__(self, url: str, exchange: str = "") -> None:
        """The routing key is the topic: with the default exchange the queue of that name gets them."""
        self._url = url
        self._exchange_name = exchange
        self._runner = asyncio.Runner()
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._exchange: AbstractExchange | None = None

    def close(self) -> None:
        self._run(self._disconnect())
        self._runner.close()

    def last_number(self, name: str) -> int:
        """It is not remembered."""
        return _NOTHING_SENT

    def write(self, name: str, batch: Batch, *, alone: bool = False) -> None:
        """Confirmed by the broker. Raises ClientError, and MessagesRefused if it has all others."""
        was_connected = self._connection is not None
        try:
            reasons = self._run(self._published(batch.messages))
        except BrokerUnreachable:
            if not was_connected:
                raise
            # Nobody looks at the connection between two batches: it may have been closed long ago.
            reasons = self._run(self._published(batch.messages))
        if reasons:
            raise MessagesRefused(reasons)

    def refusal(self, name: str, messages: Sequence[OutboxMessage]) -> ClientError | None:
        """Only `write` tells: here is no way to try."""
        return None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def _published(self, messages: Sequence[OutboxMessage]) -> dict[int, str]:
        """Why messages were refused, by their rows."""
        try:
            async with asyncio.timeout(_SECONDS):
                exchange = await self._connected()
            return await self._publish(exchange, messages)
        except ClientError:
            await self._disconnect()
            raise
        except (ProbableAuthenticationError, AuthenticationError) as error:
            await self._disconnect()
            raise LoginRefused(f"the AMQP broker does not let the relay in: {error}") from None
        except TimeoutError:
            await self._disconnect()
            raise BrokerSilent(f"the AMQP broker did not answer in {_SECONDS:g} s") from None
        except (AMQPError, OSError) as error:
            await self._disconnect()
            raise BrokerUnreachable(
                f"the AMQP broker did not take messages: {error or type(error).__name__}"
            ) from None

    async def _publish(self, exchange: AbstractExchange, messages: Sequence[OutboxMessage]) -> dict[int, str]:
        reasons: dict[int, str] = {}
        waiting: list[tuple[OutboxMessage, asyncio.Task[Any]]] = []
        ids: set[str] = set()
        last_of: dict[bytes, asyncio.Task[Any]] = {}
        for message in messages:
            refused = _local_reason(message)
            if refused is not None:
                reasons[message.row] = refused
                continue
            if message.id in ids:  # what comes back is known by its id
                reasons |= await self._settled(waiting)
                waiting, ids = [], set()
            ids.add(message.id)
            if message.key is not None and (before := last_of.get(message.key)) is not None:
                # If that is refused, and tried again, this one must not have been sent: a consumer that drops
                # what it has had would apply the two in the wrong order.
                await asyncio.wait([before])
                if not _is_final(before):
                    break
            publish = exchange.publish(_message(message), message.topic, mandatory=True, timeout=_SECONDS)
            # Tasks begin in their order, and the channel sends in that order.
            task = asyncio.create_task(publish)
            waiting.append((message, task))
            if message.key is not None:
                last_of[message.key] = task
        return reasons | await self._settled(waiting)

    async def _settled(self, waiting: Sequence[tuple[OutboxMessage, asyncio.Task[Any]]]) -> dict[int, str]:
        results = await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
        reasons: dict[int, str] = {}
        for (message, _), result in zip(waiting, results, strict=True):
            if isinstance(result, PublishError):
                reasons[message.row] = f"no queue takes it: {_returned(result)}"
            elif isinstance(result, DeliveryError):
                raise TargetRefused(
                    f"the AMQP broker refused a message for {message.topic!r}; its queue may be full"
                )
            elif isinstance(result, TypeError | ValueError | StructError):
                reasons[message.row] = f"AMQP has no form for it: {result}"
            elif isinstance(result, BaseException):
                raise result
        return reasons

    async def _connected(self) -> AbstractExchange:
        if self._exchange is not None and self._channel is not None and not self._channel.is_closed:
            return self._exchange
        await self._disconnect()
        self._connection = await aio_pika.connect(self._url, timeout=_SECONDS)
        self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        if self._exchange_name:
            self._exchange = await self._channel.get_exchange(self._exchange_name, ensure=True)
        else:
            self._exchange = self._channel.default_exchange
        return self._exchange

    async def _disconnect(self) -> None:
        connection, self._connection, self._channel, self._exchange = self._connection, None, None, None
        if connection is not None:
            try:
                async with asyncio.timeout(_SECONDS):
                    await connection.close()
            except (AMQPError, OSError) as error:
                log.debug("outbox: the connection was lost: %s", error)


def _is_final(published: "asyncio.Task[Any]") -> bool:
    """Whether the message is in a queue, or is set aside; otherwise its batch is sent again."""
    error = published.exception()
    return error is None or isinstance(error, PublishError | TypeError | ValueError | StructError)


def _local_reason(message: OutboxMessage) -> str | None:
    if message.value is None:
        return "AMQP has no tombstones: the message needs a value"
    if len(message.topic.encode()) > _LONGEST_ROUTING_KEY:
        return f"the topic has more than {_LONGEST_ROUTING_KEY} bytes"
    if any(len(name) > _LONGEST_HEADER_NAME for name, _ in message.headers):
        return f"AMQP has no headers whose names have more than {_LONGEST_HEADER_NAME} characters"
    return None


def _message(message: OutboxMessage) -> aio_pika.Message:
    headers: dict[str, Any] = {name: _value(value) for name, value in message.headers if name != HEADER}
    if message.key is not None:
        headers[KEY_HEADER] = _value(message.key)
    return aio_pika.Message(
        message.value or b"",
        headers=headers,
        message_id=message.id,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


def _value(value: bytes | None) -> str | bytearray | None:
    """Text where it is text: other clients show it as that. Otherwise a byte array."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return bytearray(value)


def _returned(error: PublishError) -> str:
    frame = error.frame
    return f"{getattr(frame, 'reply_code', '')} {getattr(frame, 'reply_text', '')}".strip()
