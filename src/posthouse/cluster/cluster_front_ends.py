"""The front ends of a broker of a cluster: it speaks with Kafka and AMQP clients itself, and passes those of
HTTP on to the coordinator while it is not that, but for the few requests that `first_bytes` keeps.
"""

from collections.abc import Sequence
from dataclasses import replace

from posthouse.cluster.dialling import Dialler
from posthouse.cluster.first_bytes import OwnOrForwarded
from posthouse.cluster.forwarding import Forwarding
from posthouse.listener_settings import ADMIN, ListenerSettings
from posthouse.protocols.front_end import ConnectionFactory, FrontEnd


def cluster_front_ends(front_ends: Sequence[FrontEnd], dialler: Dialler) -> list[FrontEnd]:
    def pass_on(listener: ListenerSettings, own: ConnectionFactory) -> ConnectionFactory:
        return OwnOrForwarded(own, Forwarding(listener.name, dialler), is_readable=not listener.has_tls)

    return [replace(each, pass_on=pass_on) if each.protocol == ADMIN else each for each in front_ends]
