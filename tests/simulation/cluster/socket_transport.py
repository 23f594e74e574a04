"""A transport on a simulated socket, as asyncio's own: back-pressure, halves that end, and what is lost."""

import asyncio
from collections.abc import Iterable
from typing import Any

from tests.simulation.cluster.sockets import SimulatedSocket
from tests.simulation.network import hand_over

_HIGH_WATER = 64 * 1024


class SocketTransport(asyncio.Transport):
    def __init__(self, loop: Any, sock: SimulatedSocket, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._loop = loop
        self._socket = sock
        self._endpoint = sock.endpoint
        self._protocol = protocol
        self._is_reading = True
        self._has_begun = False
        self._has_ended = False
        self._is_closing = False
        self._is_lost = False
        self._high = _HIGH_WATER
        self._is_congested = False
        self._endpoint.on_taken = self._taken

    def begin(self) -> None:
        """Read from now on: the protocol has its transport."""
        self._has_begun = True
        self._endpoint.on_change = self._read
        self._read()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return self._socket
        if name == "sockname":
            return self._endpoint.own
        return self._endpoint.other if name == "peername" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # Writing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._endpoint.unread_by_peer

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_lost or not data:
            return
        self._endpoint.send(bytes(data))
        if self._endpoint.unread_by_peer > self._high and not self._is_congested:
            self._is_congested = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._is_closing and not self._is_lost:
            self._endpoint.send_end()

    def _taken(self) -> None:
        if self._is_congested and not self._is_lost and self._endpoint.unread_by_peer <= self._high // 4:
            self._is_congested = False
            self._protocol.resume_writing()

    # Reading

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        endpoint = self._endpoint
        if endpoint.failure is not None:
            self._lose(endpoint.failure)
            return
        while endpoint.arrived and self._is_reading and not self._is_closing and self._has_begun:
            hand_over(self._protocol, endpoint.take())
        if (
            endpoint.has_ended
            and not endpoint.arrived
            and self._is_reading
            and not self._has_ended
            and not self._is_closing
        ):
            self._has_ended = True
            if not self._protocol.eof_received():  # type: ignore[attr-defined]
                self.close()

    # Ending

    def is_closing(self) -> bool:
        return self._is_closing or self._is_lost

    def close(self) -> None:
        """What was written still arrives."""
        if not self.is_closing():
            self._is_closing = True
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if not self._is_lost:
            self._is_closing = True
            self._loop.call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._endpoint.on_change = None
            self._endpoint.on_taken = None
            self._socket.close()
            self._loop.network.world.note(f"{self._endpoint.name} is lost")
            self._protocol.connection_lost(error)
