"""TCP between hosts: what the broker's own code does with sockets, listening ones and connected ones.

An `Endpoint` is one end of a connection, as the system of its host has it. A `SimulatedSocket` is a
descriptor of it: there may be several, and the last one that is closed closes the end.
"""

import errno
import socket
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.links import Links, Stream
from tests.simulation.world import Entry, Process, World

if TYPE_CHECKING:
    from tests.simulation.cluster.cluster_loop import ClusterLoop

Where = tuple[str, int]

_DESCRIPTOR = 1_000_000
"""No descriptor of this process has this number."""


class Endpoint:
    def __init__(self, network: "TcpNetwork", loop: "ClusterLoop", own: Where, other: Where) -> None:
        self.network = network
        self.loop = loop
        self.own = own
        self.other = other
        self.peer: Endpoint
        self.out: Stream
        self.name = ""
        self.arrived: deque[bytes] = deque()
        self.has_ended = False
        """The other side sends nothing more."""
        self.failure: OSError | None = None
        self.is_open = True
        self.has_sent_end = False
        self.descriptors = 0
        self.discards = False
        """Closing discards what was not sent (SO_LINGER with 0 seconds)."""
        self.unread_by_peer = 0
        self.on_change: Callable[[], None] | None = None
        """Something has arrived, or the connection has ended."""
        self.on_taken: Callable[[], None] | None = None
        """The other side has read."""

    def join(self, peer: "Endpoint") -> None:
        self.peer = peer
        links = self.network.links
        self.out = Stream(links.way(self.loop.host, peer.loop.host))
        self.out.on_stuck = self._stuck
        self.network.opened(self)

    def _to_peer(self, action: Callable[..., None], *args: Any) -> None:
        peer = self.peer
        self.out.send(Entry(peer.loop.process, peer.loop, action, args))

    def send(self, data: bytes) -> None:
        if self.failure is not None or not self.is_open or self.has_sent_end:
            return
        self.unread_by_peer += len(data)
        for piece in self.network.pieces(data):
            self._to_peer(self.peer.receive, piece)

    def send_end(self) -> None:
        if not self.has_sent_end and self.failure is None:
            self.has_sent_end = True
            self._to_peer(self.peer.receive_end)

    def close(self) -> None:
        """Of the last descriptor. Bytes that are on their way still arrive, unless they are discarded."""
        if not self.is_open:
            return
        self.is_open = False
        self.network.closed(self)
        if self.failure is None:
            if self.discards:
                self.out.discard()
            if self.arrived or self.discards:
                self._to_peer(self.peer.reset)
            else:
                self.send_end()
            if self.has_ended or self.arrived or self.discards:
                return
            # What the other side sends now is answered with a reset.

    def reset(self) -> None:
        self.fail(ConnectionResetError(errno.ECONNRESET, "the connection was reset"))

    def _stuck(self) -> None:
        """The system gives up: the other side has not acknowledged for too long."""
        self.out.discard()
        loop = self.loop
        self.network.world.at(
            self.network.world.now_ns,
            Entry(loop.process, loop, self.fail, (TimeoutError(errno.ETIMEDOUT, "no acknowledgement"),)),
        )

    def fail(self, error: OSError) -> None:
        if self.failure is None and self.is_open:
            self.failure = error
            self.arrived.clear()
            self._changed()

    def receive(self, data: bytes) -> None:
        if not self.is_open:
            self._to_peer(self.peer.reset)
            return
        if self.failure is None:
            self.arrived.append(data)
            self._changed()

    def receive_end(self) -> None:
        if self.is_open and self.failure is None:
            self.has_ended = True
            self._changed()

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def take(self, most: int | None = None) -> bytes:
        """What has arrived next."""
        data = self.arrived.popleft()
        if most is not None and len(data) > most:
            self.arrived.appendleft(data[most:])
            data = data[:most]
        self.network.world.note_bytes(self.name, data)
        peer = self.peer
        peer.unread_by_peer -= len(data)
        if peer.on_taken is not None and not peer.loop.process.is_dead:
            peer.loop.call_soon(peer.on_taken)
        return data


class Listening:
    """An address that takes connections, with those that wait to be accepted."""

    def __init__(self, network: "TcpNetwork", loop: "ClusterLoop", where: Where) -> None:
        self.network = network
        self.loop = loop
        self.where = where
        self.waiting: deque[Endpoint] = deque()
        self.descriptors = 0
        self._readers: dict[SimulatedSocket, Callable[[], object]] = {}

    def arrived(self, endpoint: Endpoint) -> None:
        self.waiting.append(endpoint)
        self._wake()

    def add_reader(self, reader: "SimulatedSocket", callback: Callable[[], object]) -> None:
        self._readers[reader] = callback
        self._wake()

    def remove_reader(self, reader: "SimulatedSocket") -> None:
        self._readers.pop(reader, None)

    def _wake(self) -> None:
        if self.waiting and self._readers:
            self.loop.call_soon(self._tell)

    def _tell(self) -> None:
        """As long as connections wait, whoever listens is told again."""
        for callback in list(self._readers.values()):
            if self.waiting:
                callback()
        self._wake()

    def close(self) -> None:
        self.network.unlisten(self)
        while self.waiting:
            endpoint = self.waiting.popleft()
            endpoint.discards = True
            endpoint.close()


class SimulatedSocket:
    """As much of `socket.socket` as the broker uses."""

    def __init__(self, loop: "ClusterLoop", what: Endpoint | Listening | None = None) -> None:
        self._loop = loop
        self.what = what
        if what is not None:
            what.descriptors += 1
        self._where: Where = ("", 0)

    @property
    def endpoint(self) -> Endpoint:
        assert isinstance(self.what, Endpoint), "not connected"
        return self.what

    @property
    def listening(self) -> Listening:
        assert isinstance(self.what, Listening), "does not listen"
        return self.what

    def connected(self, endpoint: Endpoint) -> None:
        self.what = endpoint
        endpoint.descriptors += 1

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, level: int, name: int, value: Any) -> None:
        if not isinstance(self.what, Endpoint):
            return
        if (level, name) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self.what.discards = True
        elif (level, name) == (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT):
            self.what.out.stuck_seconds = value / 1000

    def bind(self, where: Where) -> None:
        self._where = (where[0], where[1])

    def listen(self, backlog: int) -> None:
        self.what = self._loop.network.listen(self._loop, self._where)
        self.what.descriptors += 1

    def accept(self) -> "tuple[SimulatedSocket, Where]":
        if not self.listening.waiting:
            raise BlockingIOError
        endpoint = self.listening.waiting.popleft()
        return SimulatedSocket(self._loop, endpoint), endpoint.other

    def send(self, data: bytes) -> int:
        if self.endpoint.failure is not None:
            raise self.endpoint.failure
        self.endpoint.send(data)
        return len(data)

    def getsockname(self) -> Where:
        return self.what.where if isinstance(self.what, Listening) else self.endpoint.own

    def getpeername(self) -> Where:
        return self.endpoint.other

    def fileno(self) -> int:
        return _DESCRIPTOR

    def dup(self) -> "SimulatedSocket":
        return SimulatedSocket(self._loop, self.what)

    def close(self) -> None:
        what, self.what = self.what, None
        if what is not None:
            what.descriptors -= 1
            if isinstance(what, Listening):
                what.remove_reader(self)
            if what.descriptors == 0:
                what.close()


class SocketModule:
    """In the place of the module `socket`, for the code of a broker."""

    def __init__(self, network: "TcpNetwork") -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)

    def socket(self, *args: Any) -> SimulatedSocket:
        return SimulatedSocket(self._network.running_loop())


class TcpNetwork:
    def __init__(self, world: World, links: Links, running_loop: "Callable[[], ClusterLoop]") -> None:
        self.world = world
        self.links = links
        self.running_loop = running_loop
        self._random = world.random("tcp")
        self._system = Process(world, "system")
        """What systems do for programs, also while those are stopped."""
        self.breaks_up = 0.1
        """How likely it is that bytes arrive in pieces."""
        self._listening: dict[Where, Listening] = {}
        self._open: dict[Endpoint, None] = {}
        self._connections = 0

    def pieces(self, data: bytes) -> list[bytes]:
        if self._random.random() >= self.breaks_up or len(data) < 2:
            return [data]
        cuts = sorted({self._random.randrange(1, len(data)) for _ in range(self._random.randrange(1, 5))})
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def listen(self, loop: "ClusterLoop", where: Where) -> Listening:
        if where in self._listening:
            raise OSError(errno.EADDRINUSE, "the port is in use")
        made = self._listening[where] = Listening(self, loop, where)
        return made

    def unlisten(self, listening: Listening) -> None:
        if self._listening.get(listening.where) is listening:
            del self._listening[listening.where]

    async def connect(self, loop: "ClusterLoop", host: str, where: Where) -> Endpoint:
        """`host` has the address. Raises ConnectionRefusedError; waits for as long as the way is cut."""
        connected = loop.create_future()
        there, back = Stream(self.links.way(loop.host, host)), Stream(self.links.way(host, loop.host))

        def answer(endpoint: Endpoint | None) -> None:
            if endpoint is not None and connected.done():  # nobody waits any more
                endpoint.discards = True
                endpoint.close()
            elif not connected.done():
                connected.set_result(endpoint)

        def arrive() -> None:
            listening = self._listening.get(where)
            made = None
            if listening is not None and not loop.process.is_dead:
                made = self._joined(loop, listening)
            back.send(Entry(loop.process, loop, answer, (made,)))

        there.send(Entry(self._system, None, arrive))
        endpoint: Endpoint | None = await connected
        if endpoint is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nobody listens on {where[0]}:{where[1]}")
        return endpoint

    def _joined(self, loop: "ClusterLoop", listening: Listening) -> Endpoint:
        self._connections += 1
        number = self._connections
        client = (loop.address, 20_000 + number % 40_000)
        near = Endpoint(self, loop, client, listening.where)
        far = Endpoint(self, listening.loop, listening.where, client)
        near.name, far.name = f"{loop.host} ({number})", f"{listening.loop.host} ({number})"
        near.join(far)
        far.join(near)
        listening.loop.call_soon(listening.arrived, far)
        return near

    def opened(self, endpoint: Endpoint) -> None:
        self._open[endpoint] = None

    def closed(self, endpoint: Endpoint) -> None:
        self._open.pop(endpoint, None)

    def between(self, one: str, other: str) -> Iterator[Endpoint]:
        """The ends at the first host of its connections with the other."""
        for each in list(self._open):
            if each.loop.host == one and each.peer.loop.host == other:
                yield each

    def reset(self, endpoint: Endpoint) -> None:
        """Lose a connection: its two ends notice, each in its own time."""
        for end in (endpoint, endpoint.peer):
            when = self.world.now_ns + int(2_000_000 * self._random.random())
            self.world.at(when, Entry(end.loop.process, end.loop, end.reset))

    def died(self, loop: "ClusterLoop") -> None:
        """The system closes what a process has left: what was sent still arrives."""
        for listening in [each for each in self._listening.values() if each.loop is loop]:
            listening.close()
        for each in [each for each in self._open if each.loop is loop]:
            each.close()
