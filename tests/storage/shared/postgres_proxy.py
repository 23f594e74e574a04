"""A proxy before PostgreSQL that cuts and delays connections at a chosen message.

It knows of the protocol where messages begin and end, and which statement a call executes. Messages are
counted from `arm` on, and only on connections whose `application_name` has the given words in it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto

_LENGTH = 4
_PARSE, _BIND, _END_OF_CALL = b"P", b"B", b"S"
"""Types of messages of a client: it prepares a statement, calls it, and the last message (Sync) of both."""


class Direction(Enum):
    TO_SERVER = auto()
    TO_CLIENT = auto()


class Damage(Enum):
    CUT = auto()
    """The message and all behind it are lost, and the connection with them."""
    CUT_WITHIN = auto()
    """Half of the message arrives."""
    LATE = auto()
    """The client loses its connection at once; its call reaches the server some time later."""
    DELAY = auto()
    """The message arrives late, and the connection lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyFault:
    direction: Direction
    message: int
    """How many messages pass before the fault."""
    damage: Damage
    call: str = ""
    """Only messages of calls whose statement contains this, and of their answers. PostgreSQL begins to answer
    when the transaction has ended, unless the answer is longer than 8 KiB."""
    seconds: float = 0.1
    """Of LATE and DELAY."""


AFTER_COMMIT = ProxyFault(direction=Direction.TO_CLIENT, message=0, damage=Damage.CUT, call="commit_group(")
"""What is most delicate: a commit counts, and its answer does not arrive."""


class PostgresProxy:
    """Faults are armed one after the other; the next one begins to count when the one before has happened."""

    def __init__(self, server_port: int, watched: str = "posthouse commits") -> None:
        self._server_port = server_port
        self._watched = watched.encode()
        self._faults: deque[ProxyFault] = deque()
        self._counts: Counter[Direction] = Counter()
        self._links: dict[asyncio.Task[None], _Link] = {}
        self._is_open = True
        self.fired = 0
        self.port = 0

    def arm(self, *faults: ProxyFault) -> None:
        self._faults = deque(faults)
        self._counts.clear()
        self.fired = 0

    def refuse(self) -> None:
        """Cut all connections, and accept none until `accept`."""
        self._is_open = False
        for link in self._links.values():
            link.cut()

    def accept(self) -> None:
        self._is_open = True

    def due(self, direction: Direction, link: "_Link") -> ProxyFault | None:
        """The fault of this message."""
        if not self._faults or self._watched not in link.startup:
            return None
        fault = self._faults[0]
        if fault.call.encode() not in link.call:
            return None
        number = self._counts[direction]
        self._counts[direction] += 1
        if direction is not fault.direction or number < fault.message:
            return None
        self._faults.popleft()
        self._counts.clear()
        self.fired += 1
        return fault

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            writer.close()
            return
        try:
            startup = await _untyped(reader)
            upstream = await asyncio.open_connection("127.0.0.1", self._server_port)
        except (OSError, asyncio.IncompleteReadError):
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._links[task] = link = _Link(startup, (reader, writer), upstream)
        try:
            await link.run(self)
        finally:
            del self._links[task]

    async def close(self) -> None:
        self.refuse()
        if self._links:
            await asyncio.wait(self._links)


_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    def __init__(self, startup: bytes, client: _Streams, server: _Streams) -> None:
        self.startup = startup
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._statements: dict[bytes, bytes] = {}
        """What was prepared, by name."""
        self.call = b""
        """The statement of the last call."""

    def cut(self) -> None:
        """What was written before still arrives."""
        self._to_client.close()
        self._to_server.close()

    async def run(self, proxy: PostgresProxy) -> None:
        self._to_server.write(self.startup)
        passing = [
            asyncio.ensure_future(self._pass(proxy, Direction.TO_SERVER, self._from_client, self._to_server)),
            asyncio.ensure_future(self._pass(proxy, Direction.TO_CLIENT, self._from_server, self._to_client)),
        ]
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            for each in passing:
                each.cancel()
            await asyncio.gather(*passing, return_exceptions=True)

    async def _pass(
        self,
        proxy: PostgresProxy,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            while True:
                message = await _typed(reader)
                if direction is Direction.TO_SERVER:
                    self._note_call(message)
                fault = proxy.due(direction, self)
                if fault is not None and fault.damage is Damage.DELAY:
                    await asyncio.sleep(fault.seconds)
                elif fault is not None and fault.damage is Damage.LATE:
                    await self._deliver_late(message, fault.seconds)
                    return
                elif fault is not None:
                    if fault.damage is Damage.CUT_WITHIN:
                        writer.write(message[: len(message) // 2])
                    return
                writer.write(message)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return

    def _note_call(self, message: bytes) -> None:
        kind, words = message[:1], message[1 + _LENGTH :].split(b"\0", 2)
        if kind == _PARSE:
            name, statement, _ = words
            self._statements[name] = statement
            self.call = b""
        elif kind == _BIND:
            self.call = self._statements.get(words[1], b"")

    async def _deliver_late(self, message: bytes, seconds: float) -> None:
        call = [message]
        while call[-1][:1] != _END_OF_CALL:
            call.append(await _typed(self._from_client))
        self._to_client.close()
        await asyncio.sleep(seconds)
        self._to_server.write(b"".join(call))
        await self._to_server.drain()


async def _untyped(reader: asyncio.StreamReader) -> bytes:
    """The first message of a connection has no type."""
    length = await reader.readexactly(_LENGTH)
    return length + await reader.readexactly(int.from_bytes(length, "big") - _LENGTH)


async def _typed(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(1) + await _untyped(reader)


@asynccontextmanager
async def proxied(url: str, watched: str = "posthouse commits") -> AsyncIterator[tuple[PostgresProxy, str]]:
    """A proxy before the server of `url`, and the address that leads through it."""
    before, _, rest = url.partition("@127.0.0.1:")
    port, _, name = rest.partition("/")
    proxy = PostgresProxy(int(port), watched)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy, f"{before}@127.0.0.1:{proxy.port}/{name}?sslmode=disable&gssencmode=disable"
    finally:
        server.close()
        await proxy.close()
