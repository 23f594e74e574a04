"""The front ends of a broker of a cluster: it serves Kafka clients itself, and passes all others on to the
coordinator while it is not that.
"""

from collections.abc import Sequence
from dataclasses import replace

from posthouse.cluster.dialling import Dialler
from posthouse.cluster.first_bytes import OwnOrForwarded
from posthouse.cluster.forwarding import Forwarding
from posthouse.listener_settings import ADMIN, KAFKA, ListenerSettings
from posthouse.protocols.front_end import ConnectionFactory, FrontEnd


def cluster_front_ends(front_ends: Sequence[FrontEnd], dialler: Dialler) -> list[FrontEnd]:
    def pass_on(listener: ListenerSettings, own: ConnectionFactory) -> ConnectionFactory:
        forwarding = Forwarding(listener.name, dialler)
        if listener.protocol != ADMIN:
            return forwarding
        return OwnOrForwarded(own, forwarding, is_readable=not listener.has_tls)

    return [each if each.protocol == KAFKA else replace(each, pass_on=pass_on) for each in front_ends]
