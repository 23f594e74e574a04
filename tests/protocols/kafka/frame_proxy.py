"""A proxy between Kafka clients and a broker that can hold back, repeat and reorder single requests."""

import asyncio
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Self

from posthouse.settings import Address

_HEAD = struct.Struct(">ihhi")
_ANSWER = struct.Struct(">ii")


class Frame:
    """A request on its way, with its size in front."""

    def __init__(self, link: "Link", data: bytes) -> None:
        self.link = link
        self.data = data
        _, self.key, self.version, self.number = _HEAD.unpack_from(data)

    def send(self) -> None:
        """To the broker, over the connection that it belongs to, now."""
        self.link.upstream.write(self.data)

    async def send_again(self) -> None:
        """Done when the broker has answered."""
        answered = self.link.awaited[self.number] = asyncio.get_running_loop().create_future()
        self.send()
        await asyncio.wait_for(answered, 10)


class Link:
    """One client's connection, and the one to the broker that stands for it.

    The latter stays open when the client leaves, as it does in a network that has not heard of it yet.
    """

    def __init__(self, proxy: "FrameProxy", client: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._answered: set[int] = set()
        self.awaited: dict[int, asyncio.Future[None]] = {}

    async def run(self, requests: asyncio.StreamReader, address: Address) -> None:
        try:
            answers, self.upstream = await asyncio.open_connection(address.host, address.port)
        except ConnectionError:  # the broker has stopped already
            self._client.close()
            return
        self._proxy.links.append(self)
        returning = asyncio.create_task(self._return(answers))
        try:
            while True:
                frame = Frame(self, await _read_frame(requests))
                if self._proxy.passes(frame):
                    frame.send()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        await returning
        self.upstream.close()

    async def _return(self, answers: asyncio.StreamReader) -> None:
        try:
            while True:
                data = await _read_frame(answers)
                _, number = _ANSWER.unpack_from(data)
                if number in self.awaited:
                    self.awaited.pop(number).set_result(None)
                # The client asked once, so it hears one answer.
                if number not in self._answered and not self._client.is_closing():
                    self._answered.add(number)
                    self._client.write(data)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._client.close()

    def cut_off(self) -> None:
        """The client loses its connection; the broker does not notice."""
        self._client.close()

    def close(self) -> None:
        self._client.close()
        self.upstream.close()


class FrameProxy:
    """`passes` is asked for every request: True sends it on, False leaves that to whoever keeps the frame."""

    def __init__(self) -> None:
        self.broker: Address | None = None
        self.passes: Callable[[Frame], bool] = lambda frame: True
        self.links: list[Link] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = Address(host, port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        for link in self.links:
            link.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.broker is not None
        await Link(self, writer).run(reader, self.broker)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))
