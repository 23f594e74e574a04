"""AMQP 0-9-1 as a front end of the broker."""

from collections.abc import Callable
from functools import partial
from typing import Final

from posthouse.listener_settings import AMQP, Address, ListenerSettings
from posthouse.protocols.amqp.connections import AmqpConnections
from posthouse.protocols.amqp.direct import AmqpDirectChannels
from posthouse.protocols.front_end import Backend, ConnectionFactory, FrontEnd
from posthouse.settings import Settings


def _connect(backend: Backend) -> Callable[[ListenerSettings], ConnectionFactory]:
    broker = backend.broker
    # One for all listeners: a client without TLS may answer one with TLS by its reply-to address.
    connections = AmqpConnections(
        broker.namespaces,
        broker.publishing,
        broker.half_messages,
        broker.access,
        backend.settings,
        budget=backend.budget,
        requests=backend.requests,
        holds=broker.holds,
        transfer=backend.transfer,
    )
    backend.direct_channels.serve(AmqpDirectChannels(connections.shared))
    return lambda listener: partial(connections, name=listener.name)


def _describe(address: Address, settings: Settings) -> str:
    login = "" if settings.must_log_in else "guest:guest@"
    return f"RabbitMQ clients on amqp://{login}{address}"


AMQP_FRONT_END: Final = FrontEnd(protocol=AMQP, connect=_connect, describe=_describe, serves_namespaces=True)
