"""The connections of all AMQP listeners of a broker."""

import asyncio
import os
from collections.abc import Callable

from posthouse.broker.access.control import AccessControl
from posthouse.broker.half_messages.half_messages import HalfMessages
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.queues.publishing import Publishing
from posthouse.listener_settings import AMQP
from posthouse.model.scopes import Scope
from posthouse.protocols.amqp.connection import AmqpConnection
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.protocols.amqp.method_metrics import MethodMetrics
from posthouse.protocols.amqp.server_names import RandomBytes
from posthouse.protocols.amqp.shared import Shared
from posthouse.protocols.budget import Budget
from posthouse.protocols.listener import Listener
from posthouse.protocols.request_metrics import RequestMetrics
from posthouse.protocols.transfer import Transfer
from posthouse.settings import Settings

_ENOUGH = 2**62


class AmqpConnections:
    """A factory."""

    def __init__(
        self,
        namespaces: Namespaces,
        publishing: Publishing,
        half_messages: HalfMessages,
        access: AccessControl,
        settings: Settings,
        *,
        limits: AmqpLimits | None = None,
        budget: Budget | None = None,
        requests: RequestMetrics | None = None,
        random: RandomBytes = os.urandom,
        holds: Callable[[Scope], bool] = lambda scope: True,
        transfer: Transfer | None = None,
    ) -> None:
        """See `Shared` for `holds`. `transfer` is of a broker that is not alone."""
        self.shared = Shared(
            namespaces,
            publishing,
            half_messages,
            access,
            buffer_bytes=settings.connection_buffer_bytes,
            limits=limits or AmqpLimits(max_unacked=settings.max_unacked),
            allow_cleartext_passwords=settings.allow_cleartext_passwords,
            budget=budget or Budget(_ENOUGH),
            methods=MethodMetrics(requests or RequestMetrics()),
            random=random,
            holds=holds,
            transfer=transfer,
        )

    def __call__(self, listener: Listener, *, name: str = AMQP.name) -> asyncio.Protocol:
        """`name` is that of the setting of the listener."""
        return AmqpConnection(self.shared, listener, name)
