"""The event loop of a process on one of several hosts: sockets besides what a single broker needs."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.simulation.cluster.socket_transport import SocketTransport
from tests.simulation.cluster.sockets import SimulatedSocket, TcpNetwork, Where
from tests.simulation.loop import Failure, Loop
from tests.simulation.world import Process

Factory = Callable[[], asyncio.BaseProtocol]


class ClusterLoop(Loop):
    def __init__(
        self,
        process: Process,
        network: TcpNetwork,
        on_failure: Failure,
        *,
        host: str,
        address: str,
        hosts: Mapping[str, str],
    ) -> None:
        """`hosts` are the names of all hosts, by their addresses."""
        super().__init__(process, network, on_failure)  # type: ignore[arg-type]
        self.network = network
        self.host = host
        self.address = address
        self._hosts = hosts

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        return [(2, 1, 6, "", (host, port))]

    # Listening

    def add_reader(self, reader: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        reader.listening.add_reader(reader, lambda: callback(*args))

    def remove_reader(self, reader: Any) -> bool:
        if reader.what is not None:
            reader.listening.remove_reader(reader)
        return True

    async def sock_accept(self, sock: Any) -> "tuple[SimulatedSocket, Where]":  # type: ignore[override]
        while True:
            try:
                return sock.accept()  # type: ignore[no-any-return]
            except BlockingIOError:
                await self._readable(sock)

    async def _readable(self, sock: Any) -> None:
        arrived = self.create_future()
        sock.listening.add_reader(sock, partial(_set, arrived))
        try:
            await arrived
        finally:
            self.remove_reader(sock)

    # Connected sockets without a transport

    async def sock_connect(self, sock: Any, address: Any) -> None:
        sock.connected(await self.network.connect(self, self._hosts[address[0]], (address[0], address[1])))

    async def sock_sendall(self, sock: Any, data: Any) -> None:
        sock.send(bytes(data))

    async def sock_recv(self, sock: Any, nbytes: int) -> bytes:
        endpoint = sock.endpoint
        while True:
            if endpoint.failure is not None:
                raise endpoint.failure
            if endpoint.arrived:
                return endpoint.take(nbytes)  # type: ignore[no-any-return]
            if endpoint.has_ended:
                return b""
            changed = self.create_future()
            endpoint.on_change = partial(_set, changed)
            try:
                await changed
            finally:
                endpoint.on_change = None

    # Transports

    async def connect_accepted_socket(  # type: ignore[override]
        self, factory: Factory, sock: Any, **options: Any
    ) -> tuple[SocketTransport, asyncio.BaseProtocol]:
        return await self._transport(factory, sock)

    async def create_connection(  # type: ignore[override]
        self,
        factory: Factory,
        host: str | None = None,
        port: int | None = None,
        *,
        sock: Any = None,
        **options: Any,
    ) -> tuple[SocketTransport, asyncio.BaseProtocol]:
        if sock is None:
            assert host is not None and port is not None
            endpoint = await self.network.connect(self, self._hosts[host], (host, port))
            sock = SimulatedSocket(self, endpoint)
        return await self._transport(factory, sock)

    async def _transport(self, factory: Factory, sock: Any) -> tuple[SocketTransport, asyncio.BaseProtocol]:
        protocol = factory()
        transport = SocketTransport(self, sock, protocol)
        made = self.create_future()

        def begin() -> None:
            protocol.connection_made(transport)
            transport.begin()
            if not made.done():
                made.set_result(None)

        self.call_soon(begin)
        try:
            await made
        except BaseException:
            transport.abort()
            raise
        return transport, protocol


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
