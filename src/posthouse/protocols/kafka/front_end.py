"""Kafka's protocol as a front end of the broker."""

from collections.abc import Callable
from typing import Final

from posthouse.listener_settings import KAFKA, Address, ListenerSettings
from posthouse.protocols.front_end import Backend, ConnectionFactory, FrontEnd
from posthouse.protocols.kafka.connection import KafkaConnections
from posthouse.protocols.kafka.dispatch import Dispatcher
from posthouse.settings import Settings


def _connect(backend: Backend) -> Callable[[ListenerSettings], ConnectionFactory]:
    dispatcher = Dispatcher(backend.broker, backend.requests)
    backend.share_memberships.serve(dispatcher.share_groups)

    def connections(listener: ListenerSettings) -> KafkaConnections:
        access = backend.broker.access
        return KafkaConnections(dispatcher, access, backend.settings, backend.budget, listener.advertised)

    return connections


def _describe(address: Address, settings: Settings) -> str:
    return f"Kafka clients on {address}"


KAFKA_FRONT_END: Final = FrontEnd(protocol=KAFKA, connect=_connect, describe=_describe)
