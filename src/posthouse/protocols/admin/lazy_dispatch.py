"""The handlers are imported with the first request, in a thread.

They are many, and would be a quarter of the time that a broker takes to start; most brokers that tests start
are never asked anything over HTTP.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from posthouse.protocols.admin.login import HttpLogin
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import Response
from posthouse.protocols.front_end import Backend


class Dispatches(Protocol):
    async def dispatch(self, request: HttpRequest, login: HttpLogin, peer: str, host: str) -> Response: ...


class LazyDispatcher:
    """One for all connections."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._dispatcher: Dispatches | None = None
        self._importing: asyncio.Task[Callable[[Backend], Dispatches]] | None = None

    async def dispatch(self, request: HttpRequest, login: HttpLogin, peer: str, host: str) -> Response:
        if self._dispatcher is None:
            await self._load()
        assert self._dispatcher is not None
        return await self._dispatcher.dispatch(request, login, peer, host)

    async def _load(self) -> None:
        if self._importing is None:
            self._importing = asyncio.create_task(asyncio.to_thread(_import))
        # A client that leaves meanwhile must not cancel it for the others.
        new_dispatcher = await asyncio.shield(self._importing)
        if self._dispatcher is None:
            self._dispatcher = new_dispatcher(self._backend)


def _import() -> Callable[[Backend], Dispatches]:
    from posthouse.protocols.admin.serving import new_dispatcher

    return new_dispatcher
