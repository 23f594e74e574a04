"""A channel: its consumers, its unacknowledged deliveries, and its confirm or transaction mode."""

from collections.abc import Coroutine
from typing import Any, Protocol

from pamqp.base import Frame as Command

from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.message import MessageSource
from posthouse.broker.routing.exchange import Exchange
from posthouse.protocols.amqp.acknowledgements import Confirms
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.deliveries import Deliveries, Delivery, by_queue
from posthouse.protocols.amqp.errors import Refused, ReplyCode, speaking_of
from posthouse.protocols.amqp.reply_to import ReplyConsumer
from posthouse.protocols.amqp.session import Session
from posthouse.protocols.amqp.transactions import ChannelTransaction
from posthouse.protocols.connection_info import ChannelInfo


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
        return f"{kind} '{name}' in vhost '{self.vhost}'"

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
        acked = self.session.settlements.acked
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
            self.session.settlements.raised[queue] = None

    def _ack_several(self, taken: list[Delivery]) -> None:
        if self.transaction is not None:
            self.transaction.ack(taken)
            return
        acked = self.session.settlements.acked
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
        raised = self.session.settlements.raised
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
        """Nothing happens where there is no such consumer."""
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
