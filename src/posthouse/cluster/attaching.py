"""Hands a connected socket over to a protocol.

An event loop that is cancelled while it does that closes the descriptor, some of them a moment later. Whoever
closed the socket as well would close the descriptor twice, and by then it may be that of another connection.
So the hand-over is not cancelled: it ends in the next iteration, and the connection is aborted then.

`connect_accepted_socket` is for sockets that were connected by others, whichever side has dialled. With
`create_connection` uvloop takes over the socket only when the protocol has been told. If the connection ends
before, it closes the descriptor, and the socket closes it again when it is collected.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TypeVar

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BaseProtocol)


async def attach(connected: socket.socket, make: Callable[[], ProtocolT]) -> ProtocolT:
    """The protocol that `make` returns, with its transport. If this is cancelled, the protocol is told that
    its connection is lost."""
    loop = asyncio.get_running_loop()
    attaching = loop.create_task(loop.connect_accepted_socket(make, connected))
    try:
        _, protocol = await asyncio.shield(attaching)
    except asyncio.CancelledError:
        attaching.add_done_callback(_abort)
        raise
    except BaseException:
        connected.close()
        raise
    return protocol


def _abort(attaching: "asyncio.Task[tuple[asyncio.Transport, asyncio.BaseProtocol]]") -> None:
    if not attaching.cancelled() and attaching.exception() is None:
        transport, _ = attaching.result()
        transport.abort()
