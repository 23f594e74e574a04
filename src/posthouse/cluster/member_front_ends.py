"""The front ends of a member: it serves Kafka clients itself, and passes all others on to the coordinator."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from posthouse.cluster.dialling import Dialler
from posthouse.cluster.first_bytes import OwnOrForwarded
from posthouse.cluster.forwarding import Forwarding
from posthouse.listener_settings import ADMIN, KAFKA, ListenerSettings
from posthouse.protocols.front_end import Backend, ConnectionFactory, FrontEnd


def member_front_ends(front_ends: Sequence[FrontEnd], dialler: Dialler) -> list[FrontEnd]:
    return [each if each.protocol == KAFKA else _passed_on(each, dialler) for each in front_ends]


def _passed_on(front_end: FrontEnd, dialler: Dialler) -> FrontEnd:
    def connect(backend: Backend) -> Callable[[ListenerSettings], ConnectionFactory]:
        if front_end.protocol != ADMIN:
            return lambda listener: Forwarding(listener.name, dialler)
        own = front_end.connect(backend)

        def connections(listener: ListenerSettings) -> ConnectionFactory:
            forwarding = Forwarding(listener.name, dialler)
            return OwnOrForwarded(own(listener), forwarding, is_readable=not listener.has_tls)

        return connections

    return replace(front_end, connect=connect, is_passed_on=True)
