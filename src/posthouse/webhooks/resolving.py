"""Names to addresses, by the resolver of the system, in threads.

A name whose servers do not answer keeps one thread busy, not one for each request: who asks for it meanwhile
waits for the same answer. Other names have other threads.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from posthouse.webhooks.failures import NoAnswer

_THREADS: Final = 64

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Raises NoAnswer."""


class Resolver:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="webhook-names")
        self._asked: dict[tuple[str, int], asyncio.Future[list[str]]] = {}

    async def addresses(self, host: str, port: int) -> list[str]:
        """At least one. Raises NoAnswer."""
        place = (host, port)
        asked = self._asked.get(place)
        if asked is None:
            loop = asyncio.get_running_loop()
            asked = self._asked[place] = loop.run_in_executor(self._threads, _found, host, port)
            asked.add_done_callback(lambda done: self._answered(place, done))
        try:
            return await asyncio.shield(asked)
        except (OSError, UnicodeError) as error:
            raise NoAnswer(f"the name {host} has no address: {error}") from None

    def _answered(self, place: tuple[str, int], asked: "asyncio.Future[list[str]]") -> None:
        del self._asked[place]
        if not asked.cancelled():
            asked.exception()  # raised where it is awaited, if anybody still waits

    def close(self) -> None:
        """Threads that wait for a name server are left to end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _found(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
