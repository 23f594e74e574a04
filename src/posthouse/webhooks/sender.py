"""Sends requests to one URL, over connections that are kept alive for a while."""

import asyncio
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult

from posthouse import __version__
from posthouse.broker.webhooks.definition import SigningKey
from posthouse.model.clock import Clock
from posthouse.webhooks.answers import Answer
from posthouse.webhooks.connecting import Connector, Place
from posthouse.webhooks.http_connection import Headers, HttpConnection, Stale
from posthouse.webhooks.signatures import signed_headers

_IDLE_SECONDS: Final = 30.0
_MOST_SECONDS: Final = 300.0
"""A connection is not used for longer: the name may point elsewhere by now."""
_AGENT: Final = ("user-agent", f"posthouse/{__version__}")


class Sender:
    """Owned by the event loop. It has as many connections as there were requests at a time."""

    def __init__(
        self, url: SplitResult, connector: Connector, keys: Sequence[SigningKey], clock: Clock
    ) -> None:
        self._place = Place.of(url)
        self._target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._connector = connector
        self._keys = keys
        self._clock = clock
        self._idle: list[HttpConnection] = []

    async def send(self, id: str, headers: Headers, body: bytes, seconds: float) -> Answer:
        """Raises NoAnswer."""
        deadline = asyncio.get_running_loop().time() + seconds
        signed = [_AGENT, *headers, *signed_headers(self._keys, id, self._clock.now_ms(), body)]
        while (connection := self._kept()) is not None:
            try:
                return await self._exchanged(connection, signed, body, deadline)
            except Stale:
                continue
        connection = await self._connector.connect(self._place, deadline)
        return await self._exchanged(connection, signed, body, deadline)

    async def _exchanged(
        self, connection: HttpConnection, headers: Headers, body: bytes, deadline: float
    ) -> Answer:
        answer = await connection.exchange(self._target, headers, body, deadline)
        if connection.is_usable:
            self._idle.append(connection)
        return answer

    def _kept(self) -> HttpConnection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            is_fresh = now - connection.used_at < _IDLE_SECONDS and now - connection.opened_at < _MOST_SECONDS
            if is_fresh and connection.is_usable:
                return connection
            connection.close()
        return None

    def close(self) -> None:
        """Those in use are closed by their requests."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()
