"""A connection that goes on elsewhere in this process, when a member of a cluster becomes its coordinator.

The client notices nothing but a pause. That matters for clients that know no other living broker: after all
of their connections were closed, they ask only the addresses that they began with.
"""

import os
import socket
from asyncio import Transport
from collections.abc import Iterable
from struct import Struct

from posthouse.model.proven_user import ProvenUser
from posthouse.protocols.introduction import Origin
from posthouse.protocols.kafka.frames import FrameReader
from posthouse.settings import Address

_LENGTH = Struct(">i")


def can_move(transport: Transport) -> bool:
    """The state of TLS cannot be passed on."""
    return transport.get_extra_info("ssl_object") is None


def taken_from(
    transport: Transport,
    client: Address,
    waiting: Iterable[memoryview],
    reader: FrameReader,
    user: ProvenUser | None,
) -> tuple[socket.socket, Origin]:
    """The socket, with what the client has sent and was not begun. The transport reads no more, and has sent
    everything; it keeps a descriptor of its own, which it has to close."""
    unread = b"".join(part for frame in waiting for part in (_LENGTH.pack(len(frame)), frame))
    origin = Origin(client=client, user=user, is_moved=True, unread=unread + reader.unread())
    return socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())), origin
