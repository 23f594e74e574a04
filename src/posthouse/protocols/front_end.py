"""A front end: one protocol, with all that the broker needs to open, limit and name its listeners."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from posthouse.broker.broker import Broker
from posthouse.listener_settings import Address, ListenerSettings, WireProtocol
from posthouse.loaded_settings import SettingSource
from posthouse.protocols.budget import Budget
from posthouse.protocols.direct_channel import DirectChannels
from posthouse.protocols.gate import Gate
from posthouse.protocols.listener import ConnectionFactory as ConnectionFactory
from posthouse.protocols.loop_delay import LoopDelay
from posthouse.protocols.membership import Membership
from posthouse.protocols.peer_traffic import PeerTraffic
from posthouse.protocols.relay import Relay
from posthouse.protocols.request_metrics import RequestMetrics
from posthouse.protocols.served import ServedListeners
from posthouse.protocols.transfer import Transfer
from posthouse.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The parts that front ends use."""

    broker: Broker
    settings: Settings
    setting_sources: Mapping[str, SettingSource]
    """Where those settings come from that do not have their defaults, by name."""
    budget: Budget
    gate: Gate
    requests: RequestMetrics
    loop_delay: LoopDelay
    listeners: ServedListeners
    """Of all front ends, this one's among them; filled when all are built."""
    direct_channels: DirectChannels = field(default_factory=DirectChannels)
    """For front ends that change queues and exchanges without a session of their own."""
    membership: Membership | None = None
    """None for a broker that does not share its storage."""
    relay: Relay | None = None
    """Of a broker that shares its storage."""
    transfer: Transfer | None = None
    """Of a broker that shares its storage."""
    peer_traffic: PeerTraffic | None = None
    """Of a broker that shares its storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEnd:
    protocol: WireProtocol
    """Its listeners are those that the settings declare for this protocol."""
    connect: Callable[[Backend], Callable[[ListenerSettings], ConnectionFactory]]
    """Called once. Its result is called for each listener: all of them share what `connect` built."""
    describe: Callable[[Address, Settings], str]
    """Describes a listener for people: "Kafka clients on 127.0.0.1:9092"."""
    reads_cut_off: bool = False
    """Whether it answers while the broker has no lease because the database cannot be reached. It must then
    answer only what is durable and cannot have changed."""
    is_coordinated: bool = False
    """Whether only the coordinator serves its clients: their connections end when this broker is that no
    more."""
    serves_namespaces: bool = False
    """Whether its clients are in a namespace: their connections end when another broker is to serve that."""
    pass_on: Callable[[ListenerSettings, ConnectionFactory], ConnectionFactory] | None = None
    """Makes what passes connections of a listener on to the coordinator, as they are, while another broker is
    that: TLS is between the client and that one. It is given what makes those that are served here. None if
    this broker speaks with all clients itself; it may still transfer them: see `transfer`."""
