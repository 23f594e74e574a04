"""A channel without a connection: see `protocols.direct_channel`."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pamqp.base import Frame as Command
from pamqp.commands import Exchange, Queue

from posthouse.broker.access.guard import Guard
from posthouse.broker.access.operations import Operation
from posthouse.broker.queues.message import Message
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.queue import Queue as LeasingQueue
from posthouse.broker.queues.transaction_wave import TransactionWave
from posthouse.broker.routing.definitions import Binding
from posthouse.broker.routing.exchange import Exchange as RoutedExchange
from posthouse.model.errors import BadRequest, NotFound, PosthouseError, QueueFull, UnknownExchange
from posthouse.protocols.amqp.acknowledgements import CollectedAcks, Unfinished
from posthouse.protocols.amqp.answers import NoAnswers
from posthouse.protocols.amqp.channel import Channel
from posthouse.protocols.amqp.errors import (
    Refused,
    ReplyCode,
    access_refused,
    not_found,
    not_supported,
    precondition_failed,
    translated,
)
from posthouse.protocols.amqp.mapping.errors import PropertyError
from posthouse.protocols.amqp.mapping.half_headers import HALF
from posthouse.protocols.amqp.mapping.json_properties import properties_from_json, properties_to_json
from posthouse.protocols.amqp.methods.table import HANDLERS
from posthouse.protocols.amqp.permissions import check_exchange, check_publish, check_queue
from posthouse.protocols.amqp.session import Session
from posthouse.protocols.amqp.shared import Shared
from posthouse.protocols.amqp.throttle import Throttle
from posthouse.protocols.direct_channel import After, DirectChannel, DirectRefusal, GotMessage
from posthouse.protocols.noop import noop
from posthouse.protocols.throttle_timer import ThrottleTimer

_FRAME_MAX: Final = 131_072
_AT_ONCE: Final = 64
"""Messages that are got in one turn of the event loop."""


class AmqpDirectChannels:
    """Channels beside those of the connections, with whom they share everything but a client."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def open(self, guard: Guard, peer: str, namespace: Namespace) -> DirectChannel:
        shared, loop = self._shared, asyncio.get_running_loop()
        session = Session(
            user=guard.principal.name,
            peer=peer,
            guard=guard,
            is_guarded=shared.access.is_required,
            namespace=namespace,
            half_messages=shared.half_messages,
            capabilities={},
            frame_max=_FRAME_MAX,
            limits=shared.limits,
            outbox=NoAnswers(),
            unfinished=Unfinished(shared.publishing, shared.methods.publish, lambda error: None),
            acks=CollectedAcks(shared.methods.ack),
            delivered=shared.methods.deliver,
            throttle=Throttle(
                shared.access.quotas,
                reading=ThrottleTimer(loop, noop),
                deliveries=ThrottleTimer(loop, noop),
            ),
            envelopes=shared.envelopes,
            shown=shared.shown(namespace),
            stream_offsets=shared.stream_offsets,
            reply_tos=shared.reply_tos,
            names=shared.names,
        )
        return AmqpDirectChannel(Channel(1, session), shared)


class AmqpDirectChannel:
    def __init__(self, channel: Channel, shared: Shared) -> None:
        self._channel = channel
        self._shared = shared

    async def declare_queue(
        self, name: str, *, durable: bool, auto_delete: bool, arguments: Mapping[str, Any]
    ) -> None:
        await self._run(
            _command(
                Queue.Declare, queue=name, durable=durable, auto_delete=auto_delete, arguments=dict(arguments)
            )
        )

    async def delete_queue(self, name: str, *, if_unused: bool, if_empty: bool) -> None:
        await self._run(_command(Queue.Delete, queue=name, if_unused=if_unused, if_empty=if_empty))

    async def purge(self, name: str) -> None:
        await self._run(_command(Queue.Purge, queue=name))

    async def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Mapping[str, Any],
    ) -> None:
        await self._run(
            _command(
                Exchange.Declare,
                exchange=name,
                exchange_type=kind,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=dict(arguments),
            )
        )

    async def delete_exchange(self, name: str, *, if_unused: bool) -> None:
        await self._run(_command(Exchange.Delete, exchange=name, if_unused=if_unused))

    async def bind(self, binding: Binding) -> None:
        await self._run(_binding_command(Exchange.Bind, Queue.Bind, binding))

    async def unbind(self, binding: Binding) -> None:
        await self._run(_binding_command(Exchange.Unbind, Queue.Unbind, binding))

    async def publish(self, exchange: str, key: str, properties: Mapping[str, Any], body: bytes) -> bool:
        channel, namespace = self._channel, self._channel.namespace
        with _refusals():
            to = self._exchange(exchange)
            encoded = channel.checked_properties(properties_from_json(properties))
            envelope = self._shared.envelopes[exchange.encode(), encoded]
            if HALF in envelope.attributes:
                raise precondition_failed("for half messages use AMQP or /v1/half-messages")
            check_publish(channel.session, to, key.encode(), envelope.more_keys)
            if to.definition.internal:
                raise access_refused(f"cannot publish to internal {channel.subject('exchange', exchange)}")
            wave = TransactionWave(self._shared.publishing)
            try:
                routed = namespace.publish(to, key.encode(), body, envelope, wave, waits=False)
            except QueueFull:
                await wave.commit()  # the other queues get the message all the same
                raise
            except PosthouseError:
                wave.abandon()
                raise
            await wave.commit()
        return routed

    async def get(self, queue: str, most: int, most_bytes: int, after: After) -> Sequence[GotMessage]:
        channel = self._channel
        with _refusals():
            check_queue(channel.session, Operation.READ, queue)
            found = channel.queue(queue)
            if not isinstance(found, LeasingQueue):
                raise not_supported("basic.get", channel.subject("queue", queue))
            await channel.session.settled(queue)
            taken: list[Message] = []
            shown: list[GotMessage] = []
            size = 0
            try:
                while len(taken) < most and size < most_bytes and (message := await found.get()) is not None:
                    taken.append(message)
                    shown.append(self._got(message, found.message_count))
                    size += message.size
                    if len(taken) % _AT_ONCE == 0:
                        await asyncio.sleep(0)
            except BaseException:
                found.release(taken, count=False)
                raise
            _settle(found, taken, after)
            await channel.namespace.effects.done(queue)
        return shown

    def _exchange(self, name: str) -> RoutedExchange:
        """Only clients with permission to write to the exchange learn that it does not exist."""
        try:
            return self._channel.namespace.exchange(name)
        except UnknownExchange:
            check_exchange(self._channel.session, Operation.WRITE, name)
            raise not_found(self._channel.subject("exchange", name)) from None

    def _got(self, message: Message, left: int) -> GotMessage:
        shown = self._channel.session.shown.of(message.headers, message.topic, message.timestamp)
        return GotMessage(
            exchange=shown.exchange.decode(errors="replace"),
            routing_key=(message.key or b"").decode(errors="replace"),
            redelivered=message.redelivered,
            properties=properties_to_json(shown.properties),
            body=message.value or b"",
            left=left,
        )

    async def _run(self, command: Command) -> None:
        handler: Callable[[Channel, Any], bytes | Awaitable[object] | None] = HANDLERS[type(command)]
        with _refusals():
            answer = handler(self._channel, command)
            if inspect.isawaitable(answer):
                await answer


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except PropertyError as error:
        raise DirectRefusal(ReplyCode.PRECONDITION_FAILED, str(error)) from None
    except (BadRequest, NotFound) as error:
        refusal = translated(error)
        raise DirectRefusal(refusal.code, str(refusal)) from None
    except Refused as refusal:
        raise DirectRefusal(refusal.code, str(refusal)) from None


def _settle(queue: LeasingQueue, messages: Sequence[Message], after: After) -> None:
    if after is After.ACK:
        queue.ack(messages)
    elif after is After.REJECT:
        queue.reject(messages)
    else:
        queue.release(messages)


def _command(kind: type[Command], **fields: object) -> Command:
    """Not by its constructor, which takes fewer names than the wire does."""
    command = kind()
    for name, value in fields.items():
        setattr(command, name, value)
    return command


def _binding_command(to_exchange: type[Command], to_queue: type[Command], binding: Binding) -> Command:
    key, arguments = binding.key.decode(), dict(binding.arguments)
    if binding.to_exchange:
        return _command(
            to_exchange,
            source=binding.source,
            destination=binding.destination,
            routing_key=key,
            arguments=arguments,
        )
    return _command(
        to_queue, exchange=binding.source, queue=binding.destination, routing_key=key, arguments=arguments
    )
