"""What the channels of one connection share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from posthouse.broker.access.guard import Guard
from posthouse.broker.queues.namespace import Namespace
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.protocols.amqp.mapping.deliveries import Deliveries as Shown
from posthouse.protocols.amqp.mapping.envelopes import Envelopes
from posthouse.protocols.amqp.mapping.stream_offsets import StreamOffsets
from posthouse.protocols.amqp.reply_to import ReplyTos
from posthouse.protocols.amqp.server_names import ServerNames
from posthouse.protocols.amqp.settlements import Settlements
from posthouse.protocols.amqp.throttle import Throttle
from posthouse.protocols.amqp.unfinished import Unfinished
from posthouse.protocols.outbox import Outbox
from posthouse.protocols.request_metrics import ApiMetrics


class Closable(Protocol):
    """The channel that a notice is for."""

    @property
    def is_closed(self) -> bool: ...


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """One login to one namespace. Exclusive queues belong to it."""

    user: str
    guard: Guard
    is_guarded: bool
    """Whether there is anything that it may not do: publishes ask only then."""
    namespace: Namespace
    capabilities: Mapping[str, object]
    """What the client says it can do."""
    frame_max: int
    limits: AmqpLimits
    outbox: Outbox
    unfinished: Unfinished
    settlements: Settlements
    throttle: Throttle
    envelopes: Envelopes
    shown: Shown
    """Messages as AMQP consumers see them."""
    stream_offsets: StreamOffsets
    delivered: ApiMetrics
    reply_tos: ReplyTos
    names: ServerNames
    own_queues_left: int = 0
    """Exclusive queues that it may declare before the existing ones are counted again."""
    is_answering: bool = False
    """Whether the client waits for an answer that takes time."""
    _notices: list[tuple[Closable, bytes]] = field(default_factory=list, init=False)

    @property
    def vhost(self) -> str:
        return self.namespace.name

    async def settled(self, queue: str | None = None) -> None:
        """Wait for the publishes of this connection, and for effects under way: it is to see them.

        With a queue, also for what goes on in that one, or may lead to it.
        """
        await self.unfinished.drained()
        await self.namespace.effects.done(queue)

    def can(self, capability: str) -> bool:
        return self.capabilities.get(capability) is True

    def notify(self, channel: Closable, frame: bytes) -> None:
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
