"""One connection to an endpoint: requests and answers one after the other. h11 knows the protocol.

Bodies of answers are read up to a limit. Once the head of an answer is there, its status counts: a body that
is long, slow or cut off ends the connection, and nothing else.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final, SupportsIndex

import h11

from posthouse.webhooks.answers import Answer
from posthouse.webhooks.failures import NoAnswer

MOST_BODY: Final = 64 * 1024
"""Of an answer; the connection is closed instead of reading more."""
_MOST_HEAD: Final = 64 * 1024
_READ_BYTES: Final = 64 * 1024
_MOST_INFORMATIONAL: Final = 16

Headers = list[tuple[str, str]]


class Stale(Exception):
    """A connection that was kept alive has ended before it answered: another one is worth a try."""


class CountingReader(asyncio.StreamReader):
    """Knows whether bytes have arrived that nobody has read yet."""

    arrived = 0

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        arrived = bytes(data)
        self.arrived += len(arrived)
        super().feed_data(arrived)


class HttpConnection:
    """Owned by one request at a time."""

    def __init__(
        self, reader: CountingReader, writer: asyncio.StreamWriter, host: str, opened_at: float
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD)
        self._answered = 0
        self._read = 0
        self.opened_at = opened_at
        self.used_at = opened_at

    @property
    def is_usable(self) -> bool:
        """What has arrived without a request, such as a 408 of a load balancer, would count as the answer to
        the next one."""
        if self._reader.arrived != self._read:
            return False
        is_idle = self._protocol.states == {h11.CLIENT: h11.IDLE, h11.SERVER: h11.IDLE}
        return is_idle and not self._reader.at_eof() and not self._writer.is_closing()

    async def exchange(self, target: str, headers: Headers, body: bytes, deadline: float) -> Answer:
        """POST. Raises NoAnswer, and Stale; the connection is closed then."""
        try:
            try:
                async with asyncio.timeout_at(deadline):
                    self._send(target, headers, body)
                    await self._writer.drain()
                    response = await self._head()
            except TimeoutError:
                raise NoAnswer("the endpoint did not answer in time") from None
            except (OSError, EOFError) as error:
                if self._answered:
                    raise Stale from None
                why = f": {error}" if str(error) else ""
                raise NoAnswer(f"the endpoint ended the connection without an answer{why}") from None
            except h11.ProtocolError as error:
                raise NoAnswer(f"the endpoint answered what is not HTTP: {error}") from None
            content, is_whole = await self._body(deadline)
        except BaseException:
            self.close()
            raise
        self._answered += 1
        self.used_at = asyncio.get_running_loop().time()
        self._go_on(is_whole=is_whole)
        found = {name: value.decode("latin-1") for name, value in response.headers}
        return Answer(
            status=response.status_code,
            location=found.get(b"location"),
            retry_after=found.get(b"retry-after"),
            body=content,
        )

    def _send(self, target: str, headers: Headers, body: bytes) -> None:
        head = [("host", self._host), *headers, ("content-length", str(len(body)))]
        request = h11.Request(method="POST", target=target, headers=head)
        data = self._protocol.send(request) or b""
        data += self._protocol.send(h11.Data(data=body)) or b""
        data += self._protocol.send(h11.EndOfMessage()) or b""
        self._writer.write(data)

    async def _event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(_READ_BYTES)
            self._read += len(data)
            if not data and self._protocol.their_state is h11.SEND_RESPONSE:
                raise EOFError
            self._protocol.receive_data(data)
        return event

    async def _head(self) -> h11.Response:
        for _ in range(_MOST_INFORMATIONAL):
            event = await self._event()
            if isinstance(event, h11.Response):
                return event
        raise NoAnswer("the endpoint announces an answer again and again, and gives none")

    async def _body(self, deadline: float) -> tuple[bytes, bool]:
        """The beginning, and whether it was read to its end."""
        content = bytearray()
        with contextlib.suppress(TimeoutError, OSError, h11.ProtocolError):
            async with asyncio.timeout_at(deadline):
                while len(content) <= MOST_BODY:
                    event = await self._event()
                    if not isinstance(event, h11.Data):
                        return bytes(content), isinstance(event, h11.EndOfMessage)
                    content += event.data
        return bytes(content[:MOST_BODY]), False

    def _go_on(self, *, is_whole: bool) -> None:
        states = self._protocol.states
        more, _ = self._protocol.trailing_data
        if is_whole and not more and states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self._protocol.start_next_cycle()
        else:
            self.close()

    def close(self) -> None:
        self._writer.close()
