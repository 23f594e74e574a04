"""A standby dials the holder: several addresses, refusals that say why, strangers that say nothing."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest

from posthouse.cluster import peers
from posthouse.cluster.dialling import Dialler, NoHolder, ScopeHolder
from posthouse.cluster.peers import Adopt, PeerListener
from posthouse.cluster.preamble import AnyPassage, Passage, Refusal
from posthouse.model.address import Address
from posthouse.protocols.listening import ListeningSockets

_SECRET = b"s" * 32
_PASSAGE = Passage(listener="kafka", client=Address("10.0.0.1", 5))


def _close(accepted: socket.socket) -> None:
    accepted.close()


@asynccontextmanager
async def _listening(
    adopter: Callable[[AnyPassage], Adopt | Refusal] = lambda passage: _close,
) -> AsyncIterator[Address]:
    listening = await ListeningSockets.bind(Address("127.0.0.1", 0))
    listener = PeerListener(listening, _SECRET, adopter)
    listener.start()
    try:
        yield listening.address
    finally:
        await listener.close()


async def _dial(address: Address, secret: bytes = _SECRET) -> None:
    holder = ScopeHolder(incarnation=uuid4(), address=address)
    dialled, incarnation = await Dialler(secret, lambda scope: holder, patience_seconds=0.5).dial(_PASSAGE)
    dialled.close()
    assert incarnation == holder.incarnation


def test_all_addresses_of_the_holder_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dial() -> None:
        async with _listening() as address:
            resolve = socket.getaddrinfo

            def two_addresses(host: str, port: int, *rest: Any, **options: Any) -> Any:
                found = resolve("127.0.0.1", port, *rest, **options)
                return [*resolve("127.0.0.9", port, *rest, **options), *found] if host == "holder" else found

            monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
            await _dial(Address("holder", address.port))

    asyncio.run(dial())  # its loop asks the module socket; uvloop asks the system


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (Refusal.NOT_HOLDER, "does not hold the scope now"),
        (Refusal.NO_SUCH_LISTENER, "has no listener of this name"),
    ],
)
async def test_a_refusal_says_why(refusal: Refusal, sentence: str) -> None:
    async with _listening(lambda passage: refusal) as address:
        with pytest.raises(NoHolder, match=sentence):
            await _dial(address)


async def test_a_broker_of_another_cluster_is_told_so() -> None:
    async with _listening() as address:
        with pytest.raises(NoHolder, match="another secret"):
            await _dial(address, b"another")


@pytest.mark.parametrize("limit", ["_MOST_AT_ONCE", "_MOST_OF_ONE"])
async def test_silent_connections_do_not_keep_out_standbys(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(peers, limit, 8)
    async with _listening() as address, AsyncExitStack() as opened:
        for _ in range(20):
            _, writer = await asyncio.open_connection(address.host, address.port)
            opened.callback(writer.close)
        await _dial(address)
