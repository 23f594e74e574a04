"""A connection to the broker that holds the lease, in the name of a client."""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from posthouse.cluster.exact import receive
from posthouse.cluster.preamble import (
    CHALLENGE_BYTES,
    PROOF_BYTES,
    VERDICT_BYTES,
    Passage,
    PeerRefused,
    check_challenge,
    check_verdict,
    check_welcome,
    request,
)
from posthouse.model.address import Address

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 12.0
"""How long a client waits for a holder: a takeover takes up to ten seconds."""
_ATTEMPT_SECONDS = 3.0
_PAUSE_SECONDS = 0.1


class NoHolder(Exception):
    """No broker could be reached that holds the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The broker that holds the lease, as the standby knows it."""

    incarnation: UUID
    address: Address | None
    """Where other brokers reach it; None if it is not among the live brokers."""


class Dialler:
    """Used by all connections of a standby."""

    def __init__(
        self,
        secret: bytes,
        holder: Callable[[], Holder | None],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`holder` is the broker that holds the lease, None if the lease is free."""
        self._secret = secret
        self._holder = holder
        self.patience_seconds = patience_seconds

    def is_succeeded(self, incarnation: UUID) -> bool:
        """Whether another broker than that one is known to hold the lease now."""
        holder = self._holder()
        return holder is not None and holder.incarnation != incarnation

    async def dial(self, passage: Passage) -> tuple[socket.socket, UUID]:
        """A socket on which the bytes of the client may follow, and the incarnation of the holder there.
        Raises NoHolder."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.patience_seconds
        reason = "no broker holds the lease"
        while True:
            holder = self._holder()
            if holder is not None and (address := holder.address) is not None:
                try:
                    return await self._connected(address, passage), holder.incarnation
                except (OSError, PeerRefused, TimeoutError) as error:
                    reason = (
                        f"the holder at {address} cannot be reached: {str(error) or type(error).__name__}"
                    )
            if loop.time() > deadline:
                raise NoHolder(reason)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _connected(self, address: Address, passage: Passage) -> socket.socket:
        """Tries all addresses of the host. Raises what the last one has failed with."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_ATTEMPT_SECONDS):
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        for number, (family, kind, protocol, _, where) in enumerate(found, 1):
            dialled = socket.socket(family, kind, protocol)
            try:
                async with asyncio.timeout(_ATTEMPT_SECONDS):
                    await self._introduce(dialled, where, passage)
            except BaseException as error:
                dialled.close()
                if number == len(found) or not isinstance(error, OSError | PeerRefused | TimeoutError):
                    raise
            else:
                return dialled
        raise OSError(f"the host {address.host} has no address")

    async def _introduce(self, dialled: socket.socket, where: Any, passage: Passage) -> None:
        loop = asyncio.get_running_loop()
        dialled.setblocking(False)
        dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(dialled, where)
        challenge = await receive(dialled, CHALLENGE_BYTES)
        check_challenge(challenge)
        sent, words = request(self._secret, challenge, passage)
        await loop.sock_sendall(dialled, sent)
        check_verdict(await receive(dialled, VERDICT_BYTES))
        check_welcome(self._secret, challenge, words, await receive(dialled, PROOF_BYTES))
