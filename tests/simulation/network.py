"""Connections in memory between processes of the world: late, in pieces, and sometimes lost.

Bytes of one direction arrive in their order. When they do, in how many pieces, and whether the connection
lives that long, is the seed's choice. Back-pressure works as with sockets: a reader that pauses lets bytes
pile up, and the writer is told.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tests.simulation.world import Entry, World

HIGH_WATER = 64 * 1024

Factory = Callable[[], asyncio.BaseProtocol]


class Server:
    """What `create_server` returns."""

    def __init__(self, network: "Network", loop: Any, port: int, factory: Factory) -> None:
        self._network = network
        self.loop = loop
        self.port = port
        self.factory = factory

    @property
    def sockets(self) -> list["Server"]:
        return [self]

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def close(self) -> None:
        self._network.unlisten(self)


class Socket(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: "Network", loop: Any, name: str, address: tuple[str, int]) -> None:
        super().__init__()
        self.network = network
        self.loop = loop
        self.name = name
        self._address = address
        self.peer: Socket
        self.protocol: asyncio.BaseProtocol
        self._arrived: deque[bytes] = deque()
        """What has come and was not read, because reading is paused."""
        self._ended = False
        """Whether the other side will send nothing more."""
        self._is_reading = True
        self._closing = False
        self._lost = False
        self._unsent = 0
        self._high = HIGH_WATER
        self._writing_paused = False
        self._arrives_ns = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sockname":
            return self._address
        return ("127.0.0.1", 50_000) if name == "peername" else default

    # Writing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._unsent

    def write(self, data: Any) -> None:
        if self._closing or self._lost or not data:
            return
        data = bytes(data)
        self._unsent += len(data)
        peer = self.peer
        for piece in self.network.pieces(data):
            when = self._arrives_ns = self.network.arrival(self._arrives_ns)
            self.network.world.at(when, Entry(peer.loop.process, peer.loop, peer.receive, (piece,)))
        if self._unsent > self._high and not self._writing_paused:
            self._writing_paused = True
            self.protocol.pause_writing()

    def writelines(self, chunks: Iterable[Any]) -> None:
        self.write(b"".join(chunks))

    def _to_peer(self, when_ns: int, action: Callable[[], None]) -> None:
        loop = self.peer.loop
        self.network.world.at(when_ns, Entry(loop.process, loop, action))

    def taken(self, size: int) -> None:
        """The peer has read so many bytes."""
        self._unsent -= size
        if self._writing_paused and self._unsent <= self._high // 4 and not self._lost:
            self._writing_paused = False
            self.loop.call_soon(self.protocol.resume_writing)

    # Reading

    def receive(self, data: bytes) -> None:
        if self._lost:
            return
        self._arrived.append(data)
        self._read()

    def _read(self) -> None:
        while self._arrived and self._is_reading and not self._lost:
            data = self._arrived.popleft()
            self.network.world.note_bytes(self.name, data)
            self.peer.taken(len(data))
            hand_over(self.protocol, data)
        if self._ended and not self._arrived and self._is_reading and not self._lost:
            self._lose(None)

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.loop.call_soon(self._read)

    # Ending

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def close(self) -> None:
        """What was written still arrives."""
        if not self.is_closing():
            self._closing = True
            self._to_peer(self.network.arrival(self._arrives_ns), self.peer.end)
            self.loop.call_soon(self._lose, None)

    def end(self) -> None:
        self._ended = True
        if not self._lost:
            self._read()

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self.loop.call_soon(self._lose, None)
            self._to_peer(self.network.arrival(0), self.peer.reset)

    def reset(self) -> None:
        """The connection broke, or the other side is no more."""
        self._lose(ConnectionResetError("the connection was lost"))

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._arrived.clear()
            self.network.lost(self)
            self.network.world.note(f"{self.name} is lost")
            self.protocol.connection_lost(error)


def hand_over(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    if isinstance(protocol, asyncio.BufferedProtocol):
        view = memoryview(data)
        while view:
            buffer = memoryview(protocol.get_buffer(-1))
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            protocol.buffer_updated(size)
            view = view[size:]
    else:
        assert isinstance(protocol, asyncio.Protocol)
        protocol.data_received(data)


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self._random: Random = world.random("network")
        self.slowest_ns = 2_000_000
        self.breaks_up = 0.1
        """How likely it is that bytes arrive in pieces."""
        self._servers: dict[int, Server] = {}
        self._open: dict[Socket, None] = {}
        self._count = 0

    def arrival(self, not_before_ns: int) -> int:
        when = self.world.now_ns + int(self.slowest_ns * self._random.random() ** 3)
        return when if when > not_before_ns else not_before_ns

    def pieces(self, data: bytes) -> list[bytes]:
        if self._random.random() >= self.breaks_up or len(data) < 2:
            return [data]
        cuts = sorted(self._random.randrange(1, len(data)) for _ in range(self._random.randrange(1, 5)))
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def listen(self, loop: Any, port: int, factory: Factory) -> Server:
        assert port not in self._servers, "the port is in use"
        server = self._servers[port] = Server(self, loop, port, factory)
        return server

    def unlisten(self, server: Server) -> None:
        if self._servers.get(server.port) is server:
            del self._servers[server.port]

    async def connect(self, loop: Any, port: int, factory: Factory) -> tuple[Socket, asyncio.BaseProtocol]:
        await asyncio.sleep((self.arrival(0) - self.world.now_ns) / 1e9)
        server = self._servers.get(port)
        if server is None:
            raise ConnectionRefusedError(f"nobody listens on port {port}")
        self._count += 1
        near = Socket(self, loop, f"client {self._count}", ("127.0.0.1", 50_000 + self._count))
        far = Socket(self, server.loop, f"broker {self._count}", ("127.0.0.1", port))
        near.peer, far.peer = far, near
        near.protocol = factory()
        far.protocol = server.factory()
        self._open[near] = self._open[far] = None
        server.loop.call_soon(far.protocol.connection_made, far)
        near.protocol.connection_made(near)
        return near, near.protocol

    def lost(self, socket: Socket) -> None:
        self._open.pop(socket, None)

    @property
    def clients(self) -> list[Socket]:
        """The clients' ends of all connections."""
        return [socket for socket in self._open if socket.name.startswith("client")]

    def cut(self, socket: Socket) -> None:
        """Lose a connection: its two ends notice, each in its own time."""
        for end in (socket, socket.peer):
            self.world.at(self.arrival(0), Entry(end.loop.process, end.loop, end.reset))

    def cut_all_of(self, loop: Any) -> None:
        """The process at one end is dead: the other end hears that from its system."""
        self._servers = {port: each for port, each in self._servers.items() if each.loop is not loop}
        for socket in self.clients:
            if socket.peer.loop is loop:
                self.lost(socket.peer)
                self.world.at(self.arrival(0), Entry(socket.loop.process, socket.loop, socket.reset))
