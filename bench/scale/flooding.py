"""Sending at a pace that is given, or as fast as the socket takes it, without waiting for answers."""

import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from bench.queues.workers import Tally, now

_PATIENCE = 0.01
_RECEIVED_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class Demand:
    """What a sender would like."""

    bytes_per_second: float = inf
    window: float = inf
    """How much of what it sent may be unanswered."""


@dataclass(frozen=True, slots=True)
class Flooded:
    """What became of it."""

    offered: float
    """Bytes that it wanted to send."""
    sent: int
    """Bytes that the broker took."""
    answered: int
    """Messages or batches that were acknowledged."""
    seconds: float


def flood(
    connection: socket.socket,
    demand: Demand,
    piece: Callable[[], memoryview],
    hear: Callable[[bytes], int],
    under_way: Callable[[], int],
    is_over: Tally,
) -> Flooded:
    """Until it is over or the broker is gone. `hear` takes what came and says how many answers that makes."""
    connection.setblocking(False)
    begun = now()
    sent = answered = 0
    left = memoryview(b"")
    try:
        while not is_over.value:
            due = demand.bytes_per_second * (now() - begun)
            wants = bool(left) or (sent < due and under_way() < demand.window)
            readable, writable, _ = select.select([connection], [connection] if wants else [], [], _PATIENCE)
            if readable:
                received = connection.recv(_RECEIVED_AT_ONCE)
                if not received:
                    break
                answered += hear(received)
            if writable:
                left = left or piece()
                taken = connection.send(left)
                left = left[taken:]
                sent += taken
    except ConnectionError:
        pass  # the broker is killed in the middle of it
    seconds = now() - begun
    return Flooded(min(demand.bytes_per_second * seconds, 2.0**62), sent, answered, seconds)
