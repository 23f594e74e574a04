"""What all AMQP connections of a broker share."""

from collections.abc import Callable

from posthouse.broker.access.control import AccessControl
from posthouse.broker.half_messages.half_messages import HalfMessages
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.queues.publishing import Publishing
from posthouse.broker.routing.exchange import Exchange
from posthouse.model.scopes import Scope, scope_of_namespace
from posthouse.protocols.amqp.half_checks import HalfChecks
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.protocols.amqp.mapping.caches import DeliveryCache, EnvelopeCache
from posthouse.protocols.amqp.mapping.stream_offsets import StreamOffsets
from posthouse.protocols.amqp.method_metrics import MethodMetrics
from posthouse.protocols.amqp.reply_to import ReplyTos
from posthouse.protocols.amqp.server_names import RandomBytes, ServerNames
from posthouse.protocols.budget import Budget
from posthouse.protocols.transfer import Transfer


class Shared:
    def __init__(
        self,
        namespaces: Namespaces,
        publishing: Publishing,
        half_messages: HalfMessages,
        access: AccessControl,
        *,
        buffer_bytes: int,
        limits: AmqpLimits,
        allow_cleartext_passwords: bool,
        budget: Budget,
        methods: MethodMetrics,
        random: RandomBytes,
        holds: Callable[[Scope], bool],
        transfer: Transfer | None,
    ) -> None:
        """`holds`: whether this broker serves what a scope is about. Clients of others are transferred."""
        self.namespaces = namespaces
        self.publishing = publishing
        self.half_messages = half_messages
        self.access = access
        self.buffer_bytes = buffer_bytes
        self.limits = limits
        self.budget = budget
        self.methods = methods
        self.allow_cleartext_passwords = allow_cleartext_passwords
        self._holds = holds
        self.transfer = transfer
        self.names = ServerNames(random)
        self.reply_tos = ReplyTos(self.names)
        self.envelopes = EnvelopeCache()
        self.stream_offsets = StreamOffsets()
        half_messages.ask_by(HalfChecks(namespaces, publishing).ask)
        self._shown: dict[str, DeliveryCache] = {}

    def serves(self, vhost: str) -> bool:
        """Whether this broker serves a virtual host of this name, if there is one."""
        return self.transfer is None or self._holds(scope_of_namespace(vhost))

    def shown(self, namespace: Namespace) -> DeliveryCache:
        """Records of a namespace as AMQP messages."""
        name = namespace.name
        shown = self._shown.get(name)
        if shown is None:
            shown = self._shown[name] = DeliveryCache(lambda topic: self._exchange_of(name, topic))
        return shown

    def _exchange_of(self, namespace: str, topic: str) -> bytes:
        """Records of other protocols count as published to the exchange of their topic's name."""
        source = self.namespaces.sources.by_topic.get(topic)
        if source is None or source.namespace != namespace or not isinstance(source.target, Exchange):
            return b""
        return source.target.name.encode()
