"""A channel: publishes and acknowledges, in confirm or transaction mode; its consumers and unacknowledged
deliveries."""

from collections.abc import Coroutine
from typing import Any, Final, Protocol

from pamqp.base import Frame as Command

from posthouse.broker.access.operations import Operation
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.message import MessageSource
from posthouse.broker.routing.exchange import Exchange
from posthouse.model.errors import QueueBlocked, QueueFull
from posthouse.protocols.amqp.acknowledgements import Confirms
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.codec.events import IMMEDIATE, MANDATORY, Publish
from posthouse.protocols.amqp.deliveries import Deliveries, Delivery, by_queue
from posthouse.protocols.amqp.errors import (
    Refused,
    ReplyCode,
    access_refused,
    not_found,
    not_implemented,
    precondition_failed,
    speaking_of,
)
from posthouse.protocols.amqp.half_publishing import HalfPublish, publish_half
from posthouse.protocols.amqp.mapping.errors import PropertyError
from posthouse.protocols.amqp.mapping.half_headers import HALF
from posthouse.protocols.amqp.mapping.properties import Flag, user_id_of
from posthouse.protocols.amqp.permissions import check_exchange, check_publish
from posthouse.protocols.amqp.reply_to import PREFIX, ReplyConsumer, asks_for_reply, with_address
from posthouse.protocols.amqp.session import Session
from posthouse.protocols.amqp.transactions import ChannelTransaction, TransactionalPublish
from posthouse.protocols.connection_info import ChannelInfo

# Property flags that are tested for every message; most have neither.
_HAS_REPLY_TO: Final = Flag.REPLY_TO >> 8
_HAS_USER_ID: Final = int(Flag.USER_ID)


class ConsumerPort(Protocol):
    """A consumer of the channel."""

    @property
    def tag(self) -> str: ...

    @property
    def queue(self) -> MessageSource: ...

    def cancel(self) -> None: ...


class Channel:
    __slots__ = (
        "confirms",
        "consumers",
        "deliveries",
        "is_closed",
        "is_exhausted",
        "is_flowing",
        "last_queue",
        "namespace",
        "number",
        "outbox",
        "prefetch",
        "reply_consumer",
        "session",
        "shared_prefetch",
        "transaction",
    )

    def __init__(self, number: int, session: Session) -> None:
        self.number = number
        self.session = session
        self.namespace = session.namespace
        self.outbox = session.outbox
        self.deliveries = Deliveries()
        self.consumers: dict[str, ConsumerPort] = {}
        """By tag. With a shared prefetch, the consumer that has waited longest for a delivery is first."""
        self.reply_consumer: ReplyConsumer | None = None
        self.confirms: Confirms | None = None
        self.transaction: ChannelTransaction | None = None
        self.last_queue = ""
        """The queue that was declared last: methods without a queue name mean it."""
        self.prefetch = 0
        """The prefetch of each consumer that is started from now on (basic.qos with global=false)."""
        self.shared_prefetch = 0
        """The prefetch of all consumers together (global=true)."""
        self.is_exhausted = False
        """Whether a queue found no credit: it is told when there is credit again."""
        self.is_flowing = True
        """Whether messages are delivered: no more when the channel or the broker closes."""
        self.is_closed = False
        """Whether one side has closed the channel."""

    @property
    def info(self) -> ChannelInfo:
        confirms = self.confirms
        return ChannelInfo(
            number=self.number,
            is_transactional=self.transaction is not None,
            confirms=confirms is not None,
            prefetch=self.prefetch,
            global_prefetch=self.shared_prefetch,
            consumers=len(self.consumers),
            unacked=len(self.deliveries.held),
            unconfirmed=0 if confirms is None else confirms.unconfirmed,
        )

    def answer(self, command: Command) -> bytes:
        return encode.method(self.number, command)

    def after_effects(self, answer: bytes) -> bytes | Coroutine[Any, Any, bytes]:
        """The answer, when the effects of the method are complete: an auto-delete queue is deleted."""
        return self._after_effects(answer) if self.namespace.effects else answer

    async def _after_effects(self, answer: bytes) -> bytes:
        await self.namespace.effects.done()
        return answer

    @property
    def vhost(self) -> str:
        return self.session.vhost

    # What a client may name

    def subject(self, kind: str, name: str) -> str:
        """The object as RabbitMQ names it in error texts."""
        return self.session.subject(kind, name)

    def queue_name(self, name: str) -> str:
        """The name as given, or of the queue that was declared last on this channel."""
        if name:
            return name
        if not self.last_queue:
            raise Refused(ReplyCode.NOT_FOUND, "no previously declared queue")
        return self.last_queue

    def queue(self, name: str) -> LogQueue:
        name = self.queue_name(name)
        with speaking_of(self.subject("queue", name)):
            return self.namespace.queue(name, self.session)

    def exchange(self, name: str) -> Exchange:
        with speaking_of(self.subject("exchange", name)):
            return self.namespace.router.exchange(name)

    # Publishing

    def publish(self, event: Publish) -> None:
        """Add the message to the wave that makes it durable. Synchronous.

        Raises QueueBlocked, before anything has happened, where a queue blocks publishers.
        """
        _, _, exchange_name, key, flags, properties, body = event
        session = self.session
        if flags & IMMEDIATE:
            raise not_implemented("immediate=true")
        try:
            exchange = self.namespace.router.by_name.get(exchange_name.decode())
            if exchange is None:
                raise self._unknown_exchange(exchange_name.decode())
            if properties[0] & _HAS_REPLY_TO or properties[1] & _HAS_USER_ID:
                properties = self.checked_properties(properties)
            envelope = session.envelopes[exchange_name, properties]
        except UnicodeDecodeError:
            raise self._unknown_exchange(exchange_name.decode(errors="replace")) from None
        except PropertyError as error:
            raise Refused(ReplyCode(error.code), error.text) from None
        mandatory = flags & MANDATORY != 0
        if HALF in envelope.attributes:
            publish_half(self, HalfPublish(exchange, key, body, properties, mandatory))
            return
        is_reply = not exchange_name and key.startswith(PREFIX)
        if session.is_guarded and not is_reply:
            check_publish(session, exchange, key, envelope.more_keys)
        if exchange.definition.internal:
            raise access_refused(f"cannot publish to internal {self.subject('exchange', exchange.name)}")
        unfinished = session.unfinished
        if self.transaction is not None:
            unfinished.metrics.untimed += 1
            self.transaction.publish(
                TransactionalPublish(exchange, key, body, properties, envelope, mandatory, is_reply)
            )
            return
        if is_reply:
            unfinished.metrics.untimed += 1
            self.publish_reply(key, properties, body, mandatory=mandatory)
            return
        part = unfinished.part()
        confirms = self.confirms
        try:
            routed = self.namespace.publish(exchange, key, body, envelope, part.wave)
        except QueueBlocked:
            raise
        except QueueFull:
            unfinished.metrics.untimed += 1
            unfinished.metrics.errors += 1
            if confirms is not None:
                confirms.refused()
            return
        size = len(body)
        part.size += size
        part.count += 1
        unfinished.size += size
        if mandatory and not routed:
            self.return_unroutable(exchange_name, key, properties, body)
        if confirms is not None:
            confirms.joined(part)

    def _unknown_exchange(self, name: str) -> Refused:
        """Only clients with permission to write to the exchange learn that it does not exist."""
        check_exchange(self.session, Operation.WRITE, name)
        return not_found(self.subject("exchange", name))

    def checked_properties(self, properties: bytes) -> bytes:
        """Check user-id, and replace the pseudo queue in reply-to by the address of the channel."""
        user = user_id_of(properties)
        own = self.session.user
        if user is not None and user != own.encode():
            shown = user.decode(errors="replace")
            raise precondition_failed(f"user_id property set to '{shown}' but authenticated user was '{own}'")
        return with_address(properties, self.reply_consumer) if asks_for_reply(properties) else properties

    def return_unroutable(self, exchange: bytes, key: bytes, properties: bytes, body: bytes) -> None:
        """Send basic.return: the message is mandatory, and no queue takes it."""
        code = ReplyCode.NO_ROUTE
        self.return_message(code, code.name, exchange, key, properties, body)

    def return_message(
        self, code: ReplyCode, text: str, exchange: bytes, key: bytes, properties: bytes, body: bytes
    ) -> None:
        frame_max = self.session.frame_max
        self.outbox.send(encode.returned(self.number, code, text, exchange, key, properties, body, frame_max))

    def publish_reply(self, key: bytes, properties: bytes, body: bytes, *, mandatory: bool) -> None:
        """Deliver a direct reply to the channel that waits for it. Nothing is stored."""
        consumer = self.session.reply_tos.find(key, self.session.vhost)
        if (consumer is None or not consumer.deliver(key, properties, body)) and mandatory:
            self.return_unroutable(b"", key, properties, body)
        if self.confirms is not None:
            self.confirms.taken()

    # Deliveries

    @property
    def credit(self) -> int:
        """How many more deliveries may wait for their acknowledgement."""
        credit = self.session.limits.max_unacked - len(self.deliveries.held)
        if self.shared_prefetch:
            credit = min(credit, self.shared_credit)
        if credit <= 0:
            self.is_exhausted = True
        return credit

    @property
    def shared_credit(self) -> int:
        """Credit by the shared prefetch alone, which also limits consumers without acknowledgements."""
        credit = self.shared_prefetch - len(self.deliveries.held) + self.deliveries.gotten
        if credit <= 0:
            self.is_exhausted = True
        return credit

    def has_served(self, consumer: ConsumerPort) -> None:
        """Move a consumer to the end of the line for credit: one busy queue must not starve the others."""
        if self.consumers.pop(consumer.tag, None) is not None:
            self.consumers[consumer.tag] = consumer

    def ack(self, tag: int, multiple: bool) -> None:
        deliveries = self.deliveries
        if multiple or self.transaction is not None or tag not in deliveries.held:
            self._ack_several(deliveries.take(tag, multiple))
            return
        # One by one is how most clients do it: no list, no calls.
        _, message, consumer = deliveries.held.pop(tag)
        queue = message.queue
        acked = self.session.acks.acked
        waiting = acked.get(queue)
        if waiting is None:
            acked[queue] = [message]
        else:
            waiting.append(message)
        if consumer is None:
            deliveries.gotten -= 1
        else:
            consumer.unacked -= 1
            if self.is_exhausted:
                self.raise_credit()
            self.session.acks.raised[queue] = None

    def _ack_several(self, taken: list[Delivery]) -> None:
        if self.transaction is not None:
            self.transaction.ack(taken)
            return
        acked = self.session.acks.acked
        for queue, messages in by_queue(taken).items():
            acked.setdefault(queue, []).extend(messages)
        self.freed(taken)

    def reject(self, tag: int, multiple: bool, requeue: bool) -> None:
        taken = self.deliveries.take(tag, multiple)
        if self.transaction is not None:
            self.transaction.reject(taken, requeue)
        else:
            self.settle_rejected(taken, requeue)

    def settle_rejected(self, taken: list[Delivery], requeue: bool) -> None:
        self.freed(taken)
        for queue, messages in by_queue(taken).items():
            if requeue:
                queue.release(messages)
            else:
                queue.reject(messages)

    def requeue_all(self) -> None:
        self.settle_rejected(self.deliveries.take_all(), True)

    def freed(self, taken: list[Delivery]) -> None:
        """Deliveries are settled: raise the credit of their consumers."""
        for _, _, consumer in taken:
            if consumer is not None:
                consumer.unacked -= 1
        self.raise_credit()

    def raise_credit(self) -> None:
        """Tell the queues of all consumers that there may be credit again."""
        self.is_exhausted = False
        raised = self.session.acks.raised
        for consumer in self.consumers.values():
            raised[consumer.queue] = None

    def deliver_reply(self, tag: str, key: bytes, properties: bytes, body: bytes) -> bool:
        """See `reply_to.ReplyChannel`."""
        session = self.session
        if session.outbox.is_congested or not self.is_flowing:
            return False
        self.deliveries.last_tag = number = self.deliveries.last_tag + 1
        frame = encode.deliver(
            self.number, tag.encode(), number, False, b"", key, properties, body, session.frame_max
        )
        session.outbox.send(frame)
        if not session.throttle.quotas.is_empty:
            session.throttle.delivered(len(frame))
        return True

    # Its end

    def cancel(self, tag: str) -> None:
        """Cancel the consumer; a no-op if there is none."""
        consumer = self.consumers.pop(tag, None)
        if consumer is not None:
            consumer.cancel()
        elif self.reply_consumer is not None and self.reply_consumer.tag == tag:
            self.session.reply_tos.close(self.reply_consumer)
            self.reply_consumer = None

    def close(self) -> None:
        """Cancel the consumers, and requeue the deliveries that were not acknowledged."""
        if self.is_closed:
            return
        self.is_closed = True
        self.is_flowing = False
        for consumer in self.consumers.values():
            consumer.cancel()
        self.consumers.clear()
        if self.reply_consumer is not None:
            self.session.reply_tos.close(self.reply_consumer)
            self.reply_consumer = None
        if self.confirms is not None:
            self.confirms.close()
        if self.transaction is not None:
            self.deliveries.put_back(self.transaction.take().deliveries())
        self.release_all()

    def release_all(self) -> None:
        for queue, messages in by_queue(self.deliveries.take_all()).items():
            queue.release(messages)
