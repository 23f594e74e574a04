"""What all connections of one listener share."""

from dataclasses import dataclass, field

from posthouse.broker.access.control import AccessControl
from posthouse.protocols.budget import Budget
from posthouse.protocols.kafka.companion import OpenCompanion
from posthouse.protocols.kafka.dispatch import RequestDispatcher
from posthouse.protocols.kafka.frames import RECEIVE_BUFFER
from posthouse.protocols.kafka.nodes import Node
from posthouse.settings import Address, Settings


def _receive_buffer() -> memoryview:
    return memoryview(bytearray(RECEIVE_BUFFER))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionParts:
    dispatcher: RequestDispatcher
    access: AccessControl
    settings: Settings
    budget: Budget
    advertised: Address | None
    cluster: Node | None
    """The node that clients are told of if this broker shares its storage with others."""
    open_companion: OpenCompanion | None
    """Of a broker that shares its storage with others, and relays some requests to them."""
    receive_buffer: memoryview = field(default_factory=_receive_buffer)
