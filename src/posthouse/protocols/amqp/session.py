"""What the channels of one connection share."""

from collections.abc import Mapping
from dataclasses import dataclass

from posthouse.broker.queues.namespace import Namespace
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.protocols.amqp.mapping.deliveries import Deliveries as Shown
from posthouse.protocols.amqp.mapping.envelopes import Envelopes
from posthouse.protocols.amqp.outbox import Outbox
from posthouse.protocols.amqp.reply_to import ReplyTos
from posthouse.protocols.amqp.server_names import ServerNames
from posthouse.protocols.amqp.settlements import Settlements
from posthouse.protocols.amqp.unfinished import Unfinished


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """One login to one namespace. Exclusive queues belong to it."""

    user: str
    namespace: Namespace
    capabilities: Mapping[str, object]
    """What the client says it can do."""
    frame_max: int
    limits: AmqpLimits
    outbox: Outbox
    unfinished: Unfinished
    settlements: Settlements
    envelopes: Envelopes
    shown: Shown
    """Messages as AMQP consumers see them."""
    reply_tos: ReplyTos
    names: ServerNames

    @property
    def vhost(self) -> str:
        return self.namespace.name

    def can(self, capability: str) -> bool:
        return self.capabilities.get(capability) is True
