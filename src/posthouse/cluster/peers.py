"""The listener for other brokers: connections and requests of clients that they pass on, and their hints."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from posthouse.cluster.exact import receive
from posthouse.cluster.preamble import (
    LENGTH,
    PROOF_BYTES,
    AnyPassage,
    PeerRefused,
    Refusal,
    new_challenge,
    read_request,
    refused,
    size_of_words,
    welcome,
)
from posthouse.model.address import Address
from posthouse.protocols.listening import ListeningSockets

log = logging.getLogger(__name__)

_PREAMBLE_SECONDS = 3.0
_MOST_AT_ONCE = 512
"""Connections that have not yet said what they are for."""
_MOST_OF_ONE = 256
"""Of these, those of one address."""
_REST_SECONDS = 0.5

Adopt = Callable[[socket.socket], None]
"""Takes over the socket behind the preamble."""


class PeerListener:
    """Owned by the event loop."""

    def __init__(
        self, listening: ListeningSockets, secret: bytes, adopter: Callable[[AnyPassage], Adopt | Refusal]
    ) -> None:
        """`adopter` returns what serves such a connection. The sockets are closed with this listener."""
        self._listening = listening
        self._secret = secret
        self._adopter = adopter
        self._accepting: list[asyncio.Task[None]] = []
        self._talking: dict[asyncio.Task[None], str] = {}
        """The connections that have not yet said what they are for, by age, and their hosts."""

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
            self._make_room(where[0])
            task = loop.create_task(self._talk(accepted, str(Address(where[0], where[1]))))
            self._talking[task] = where[0]
            task.add_done_callback(self._has_talked)

    def _has_talked(self, task: "asyncio.Task[None]") -> None:
        self._talking.pop(task, None)

    def _make_room(self, host: str) -> None:
        """Close the oldest connection of a host that has too many, or of the one with the most of all:
        connections that say nothing do not keep out brokers, which speak at once."""
        crowds = Counter(self._talking.values())
        if crowds[host] >= _MOST_OF_ONE:
            self._close_oldest(host)
        elif len(self._talking) >= _MOST_AT_ONCE:
            self._close_oldest(crowds.most_common(1)[0][0])

    def _close_oldest(self, host: str) -> None:
        oldest = next(task for task, found in self._talking.items() if found == host)
        del self._talking[oldest]
        oldest.cancel()

    async def _talk(self, accepted: socket.socket, peer: str) -> None:
        try:
            accepted.setblocking(False)
            async with asyncio.timeout(_PREAMBLE_SECONDS):
                passage, answer = await self._read(accepted)
                adopt = self._adopter(passage)
                if isinstance(adopt, Refusal):
                    raise PeerRefused(f"this broker does not serve {passage} now", adopt)
                await asyncio.get_running_loop().sock_sendall(accepted, answer)
            adopt = self._adopter(passage)
            if isinstance(adopt, Refusal):
                accepted.close()
            else:
                adopt(accepted)
        except BaseException as error:
            if isinstance(error, PeerRefused):
                _tell(accepted, error.refusal)
            accepted.close()
            if not isinstance(error, PeerRefused | OSError | TimeoutError):
                raise
            log.info("peer: closing the connection from %s: %s", peer, str(error) or type(error).__name__)

    async def _read(self, accepted: socket.socket) -> tuple[AnyPassage, bytes]:
        """What the other broker wants, and what to answer."""
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


def _tell(accepted: socket.socket, refusal: Refusal) -> None:
    with suppress(OSError):  # the other side may be gone, and nothing depends on it
        accepted.send(refused(refusal))
