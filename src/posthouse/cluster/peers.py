"""The listener for other brokers: it takes over the connections that standbys pass on."""

import asyncio
import logging
import socket
from collections.abc import Callable

from posthouse.cluster.exact import receive
from posthouse.cluster.preamble import (
    LENGTH,
    PROOF_BYTES,
    Passage,
    PeerRefused,
    new_challenge,
    read_request,
    size_of_words,
    welcome,
)
from posthouse.model.address import Address
from posthouse.protocols.listening import ListeningSockets

log = logging.getLogger(__name__)

_PREAMBLE_SECONDS = 3.0
_MOST_AT_ONCE = 512
"""Brokers that have connected and not yet said what for."""
_REST_SECONDS = 0.5

Adopt = Callable[[socket.socket, Address], None]


class PeerListener:
    """Owned by the event loop."""

    def __init__(
        self, listening: ListeningSockets, secret: bytes, adopter: Callable[[str], Adopt | None]
    ) -> None:
        """`adopter` returns what serves connections of the listener of that name; None if this broker does
        not hold the lease or has no such listener. The sockets are closed with this listener."""
        self._listening = listening
        self._secret = secret
        self._adopter = adopter
        self._accepting: list[asyncio.Task[None]] = []
        self._talking: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._accepting = [loop.create_task(self._accept(each)) for each in self._listening.sockets]

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, where = await loop.sock_accept(listening)
            except OSError as error:
                log.error("peer: cannot accept connections, retrying: %s", error.strerror)
                await asyncio.sleep(_REST_SECONDS)
                continue
            if len(self._talking) >= _MOST_AT_ONCE:
                accepted.close()
                continue
            task = loop.create_task(self._talk(accepted, str(Address(where[0], where[1]))))
            self._talking.add(task)
            task.add_done_callback(self._talking.discard)

    async def _talk(self, accepted: socket.socket, peer: str) -> None:
        try:
            accepted.setblocking(False)
            async with asyncio.timeout(_PREAMBLE_SECONDS):
                passage, answer = await self._read(accepted)
                adopt = self._adopter(passage.listener)
                if adopt is None:
                    raise PeerRefused(f"this broker does not serve {passage.listener} now")
                await asyncio.get_running_loop().sock_sendall(accepted, answer)
            adopt = self._adopter(passage.listener)
            if adopt is None:
                accepted.close()
            else:
                adopt(accepted, passage.client)
        except BaseException as error:
            accepted.close()
            if not isinstance(error, PeerRefused | OSError | TimeoutError):
                raise
            log.info("peer: closing the connection from %s: %s", peer, str(error) or type(error).__name__)

    async def _read(self, accepted: socket.socket) -> tuple[Passage, bytes]:
        """What the standby wants, and what to answer."""
        challenge = new_challenge()
        await asyncio.get_running_loop().sock_sendall(accepted, challenge)
        size = size_of_words(await receive(accepted, LENGTH.size))
        words = await receive(accepted, size)
        proof = await receive(accepted, PROOF_BYTES)
        passage = read_request(self._secret, challenge, words, proof)
        return passage, welcome(self._secret, challenge, words)

    async def close(self) -> None:
        tasks = [*self._accepting, *self._talking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()
