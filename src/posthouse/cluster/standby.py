"""A broker that does not hold the lease: it listens where it always does, and passes all connections on."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from posthouse.cluster.dialling import Dialler
from posthouse.cluster.forwarding import ForwardedConnection, Forwarding
from posthouse.listener_settings import ADMIN, KAFKA, ListenerSettings
from posthouse.protocols.gate import Gate
from posthouse.protocols.listener import Listener
from posthouse.protocols.listening import ListeningSockets

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 1.0
_DRAIN_SECONDS = 0.5


class Standby:
    """Started once, stopped once."""

    def __init__(self, listeners: Sequence[ListenerSettings], gate: Gate, dialler: Dialler) -> None:
        self._gate = gate
        self._listeners = {each.name: _listener(each, gate, dialler) for each in listeners}
        self._sweeping: asyncio.TimerHandle | None = None

    def start(self, sockets: Mapping[str, ListeningSockets]) -> None:
        """The sockets, by the names of the listeners, are closed when the standby stops."""
        for name, listener in self._listeners.items():
            listener.start_on(sockets[name])
        self._sweep()

    def _sweep(self) -> None:
        self._gate.sweep()
        for each in self._listeners.values():
            each.sweep()
        self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    async def stop(self, *, takes_over: bool) -> None:
        """Close all connections. Their clients connect again, and then reach the new holder.

        If this broker takes over, connections that wait for a holder stay, and reach this one. For a client
        that knows no other living broker, a closed connection would be the end: it asks only the addresses
        that it began with.
        """
        if self._sweeping is not None:
            self._sweeping.cancel()
        for each in self._listeners.values():
            if takes_over:
                for connection in list(each):
                    if isinstance(connection, ForwardedConnection) and connection.is_waiting:
                        connection.detach()
            each.close()
        await asyncio.gather(*(each.drained(_DRAIN_SECONDS) for each in self._listeners.values()))


def _listener(settings: ListenerSettings, gate: Gate, dialler: Dialler) -> Listener:
    answers_probes = settings.protocol == ADMIN and not settings.has_tls
    forwarding = Forwarding(
        settings.name,
        dialler,
        answers_probes=answers_probes,
        is_plain_kafka=settings.protocol == KAFKA and not settings.has_tls,
    )
    return Listener(f"{settings.protocol.label} (standby)", forwarding, gate)
