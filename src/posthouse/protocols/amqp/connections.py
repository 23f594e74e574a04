"""The connections of all AMQP listeners of a broker."""

import asyncio
import os

from posthouse.broker.access.control import AccessControl
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.queues.publishing import Publishing
from posthouse.protocols.amqp.connection import AmqpConnection
from posthouse.protocols.amqp.limits import AmqpLimits
from posthouse.protocols.amqp.method_metrics import MethodMetrics
from posthouse.protocols.amqp.server_names import RandomBytes
from posthouse.protocols.amqp.shared import Shared
from posthouse.protocols.budget import Budget
from posthouse.protocols.listener import Listener
from posthouse.protocols.request_metrics import RequestMetrics
from posthouse.settings import Settings

_ENOUGH = 2**62


class AmqpConnections:
    """A factory."""

    def __init__(
        self,
        namespaces: Namespaces,
        publishing: Publishing,
        access: AccessControl,
        settings: Settings,
        *,
        limits: AmqpLimits | None = None,
        budget: Budget | None = None,
        requests: RequestMetrics | None = None,
        random: RandomBytes = os.urandom,
    ) -> None:
        self.shared = Shared(
            namespaces,
            publishing,
            access,
            buffer_bytes=settings.connection_buffer_bytes,
            limits=limits or AmqpLimits(max_unacked=settings.max_unacked),
            allow_cleartext_passwords=settings.allow_cleartext_passwords,
            budget=budget or Budget(_ENOUGH),
            methods=MethodMetrics(requests or RequestMetrics()),
            random=random,
        )

    def __call__(self, listener: Listener) -> asyncio.Protocol:
        return AmqpConnection(self.shared, listener)
