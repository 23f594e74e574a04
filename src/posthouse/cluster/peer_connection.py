"""A connection to the peer listener of another broker."""

import asyncio
import socket
from typing import Any

from posthouse.cluster.exact import receive
from posthouse.cluster.preamble import (
    CHALLENGE_BYTES,
    PROOF_BYTES,
    VERDICT_BYTES,
    AnyPassage,
    PeerRefused,
    check_challenge,
    check_verdict,
    check_welcome,
    request,
)
from posthouse.model.address import Address

_ATTEMPT_SECONDS = 3.0

NOT_CONNECTED = (OSError, PeerRefused, TimeoutError)
"""What `connect` raises."""


async def connect(address: Address, secret: bytes, passage: AnyPassage) -> socket.socket:
    """A socket on which the bytes of the passage may follow. Tries all addresses of the host, and raises what
    the last one has failed with."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_ATTEMPT_SECONDS):
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, where) in enumerate(found, 1):
        dialled = socket.socket(family, kind, protocol)
        try:
            async with asyncio.timeout(_ATTEMPT_SECONDS):
                await _introduce(dialled, where, secret, passage)
        except BaseException as error:
            dialled.close()
            if number == len(found) or not isinstance(error, NOT_CONNECTED):
                raise
        else:
            return dialled
    raise OSError(f"the host {address.host} has no address")


async def _introduce(dialled: socket.socket, where: Any, secret: bytes, passage: AnyPassage) -> None:
    loop = asyncio.get_running_loop()
    dialled.setblocking(False)
    dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    await loop.sock_connect(dialled, where)
    challenge = await receive(dialled, CHALLENGE_BYTES)
    check_challenge(challenge)
    sent, words = request(secret, challenge, passage)
    await loop.sock_sendall(dialled, sent)
    check_verdict(await receive(dialled, VERDICT_BYTES))
    check_welcome(secret, challenge, words, await receive(dialled, PROOF_BYTES))
