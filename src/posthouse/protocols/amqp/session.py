"""What the channels of one connection share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from posthouse.broker.access.guard import Guard
from posthouse.broker.half_messages.half_messages import HalfMessages
from posthouse.broker.queues.namespace import Namespace
from posthouse.protocols.amqp.acknowledgements import CollectedAcks, Unfinished
from posthouse.protocols.amqp.answers import Answers
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.protocols.amqp.mapping.caches import DeliveryCache, EnvelopeCache
from posthouse.protocols.amqp.mapping.stream_offsets import StreamOffsets
from posthouse.protocols.amqp.reply_to import ReplyTos
from posthouse.protocols.amqp.server_names import ServerNames
from posthouse.protocols.amqp.throttle import Throttle
from posthouse.protocols.request_metrics import ApiMetrics


class NoticeChannel(Protocol):
    """The channel that a notice is for."""

    @property
    def is_closed(self) -> bool: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """One login to one namespace. Exclusive queues belong to it."""

    user: str
    peer: str
    """Address and port of the client."""
    guard: Guard
    is_guarded: bool
    """Whether permissions have to be checked."""
    namespace: Namespace
    half_messages: HalfMessages
    capabilities: Mapping[str, object]
    """Capabilities that the client announced."""
    frame_max: int
    limits: AmqpLimits
    outbox: Answers
    unfinished: Unfinished
    acks: CollectedAcks
    throttle: Throttle
    envelopes: EnvelopeCache
    shown: DeliveryCache
    """Records as AMQP messages."""
    stream_offsets: StreamOffsets
    delivered: ApiMetrics
    reply_tos: ReplyTos
    names: ServerNames
    own_queues_left: int = 0
    """Exclusive queues that may be declared before the existing ones are counted again."""
    is_answering: bool = False
    """Whether the client waits for the answer to a method."""
    _notices: list[tuple[NoticeChannel, bytes]] = field(default_factory=list, init=False)

    @property
    def vhost(self) -> str:
        return self.namespace.name

    def subject(self, kind: str, name: str) -> str:
        """The object as RabbitMQ names it in error texts."""
        return f"{kind} '{name}' in vhost '{self.vhost}'"

    async def settled(self, queue: str | None = None) -> None:
        """Wait for the publishes of this connection and for effects under way, so that the client sees them.

        With a queue, also for the work of that queue, and of queues whose dead letters may get there.
        """
        await self.unfinished.drained()
        await self.namespace.effects.done(queue)

    def can(self, capability: str) -> bool:
        return self.capabilities.get(capability) is True

    def notify(self, channel: NoticeChannel, frame: bytes) -> None:
        """Send a frame that the client did not ask for, after the answer that it waits for.

        A client that deletes a queue reads queue.delete-ok first, and then basic.cancel for its consumers:
        clients that read synchronously are not prepared for another order.
        """
        if self.is_answering:
            self._notices.append((channel, frame))
        else:
            self.outbox.send(frame)

    def answered(self) -> None:
        self.is_answering = False
        notices, self._notices = self._notices, []
        for channel, frame in notices:
            if not channel.is_closed:
                self.outbox.send(frame)
