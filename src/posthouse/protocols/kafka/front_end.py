"""Kafka's protocol as a front end of the broker."""

from collections.abc import Callable
from functools import partial
from typing import Final

from posthouse.listener_settings import KAFKA, Address, ListenerSettings
from posthouse.protocols.front_end import Backend, ConnectionFactory, FrontEnd
from posthouse.protocols.kafka.connection import KafkaConnection
from posthouse.protocols.kafka.connection_parts import ConnectionParts
from posthouse.protocols.kafka.dispatch import RequestDispatcher
from posthouse.protocols.kafka.nodes import MemberNode
from posthouse.settings import Settings


def _connect(backend: Backend) -> Callable[[ListenerSettings], ConnectionFactory]:
    dispatcher = _dispatcher(backend)

    def connections(listener: ListenerSettings) -> ConnectionFactory:
        membership = backend.membership
        parts = ConnectionParts(
            dispatcher=dispatcher,
            access=backend.broker.access,
            settings=backend.settings,
            budget=backend.budget,
            advertised=listener.advertised,
            cluster=None
            if membership is None
            else MemberNode(membership, listener.name, backend.broker.holds),
            open_companion=None if backend.relay is None else partial(backend.relay.open, listener.name),
        )
        return partial(KafkaConnection, parts)

    return connections


def _dispatcher(backend: Backend) -> RequestDispatcher:
    if backend.membership is None:
        return RequestDispatcher(backend.broker, backend.requests)
    # Not needed by a broker that is alone.
    from posthouse.protocols.kafka.cluster_dispatch import ClusterDispatcher

    return ClusterDispatcher(
        backend.broker, backend.requests, backend.membership, can_relay=backend.relay is not None
    )


def _describe(address: Address, settings: Settings) -> str:
    return f"Kafka clients on {address}"


KAFKA_FRONT_END: Final = FrontEnd(protocol=KAFKA, connect=_connect, describe=_describe, reads_cut_off=True)
