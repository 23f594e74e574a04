"""A client of server-sent events, by the rules of the standard: what an `EventSource` makes of the bytes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx


class Event(NamedTuple):
    kind: str
    data: Any
    id: str


class EventSource:
    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()
        self.last_id = ""

    async def next(self) -> Event:
        """Raises EOFError where the stream ends."""
        kind, data = "message", ""
        async for line in self._lines:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                kind = value
            elif name == "data":
                data += value
            elif name == "id":
                self.last_id = value
            elif not line and data:
                return Event(kind, json.loads(data), self.last_id)
            elif not line:
                kind = "message"
        raise EOFError

    async def take(self, count: int) -> list[Event]:
        return [await self.next() for _ in range(count)]

    async def until_id(self) -> str:
        """The next one. The first comes before any event; later ones come with events and comments."""
        async for line in self._lines:
            if line.startswith("id: "):
                self.last_id = line.removeprefix("id: ")
                return self.last_id
        raise EOFError


@asynccontextmanager
async def listening(
    http: httpx.AsyncClient, path: str, last_id: str = "", **parameters: Any
) -> AsyncIterator[EventSource]:
    headers = {"last-event-id": last_id} if last_id else {}
    async with (
        asyncio.timeout(60),
        http.stream("GET", path, params=parameters, headers=headers, timeout=60) as response,
    ):
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"] == "text/event-stream"
        yield EventSource(response)
