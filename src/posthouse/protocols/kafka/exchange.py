"""One request and its place in the order of its connection."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from posthouse.broker.access.guard import Guard
from posthouse.protocols.kafka.codec.primitives import Buffer, Message
from posthouse.protocols.kafka.login import Login
from posthouse.protocols.kafka.request_origins import ConnectionIdentity

if TYPE_CHECKING:
    from posthouse.protocols.kafka.connection import KafkaConnection

_LINGER_SECONDS = 0.2


class Exchange:
    """See `dispatch.Exchange`."""

    __slots__ = ("chunks", "connection", "held", "ready", "size")

    def __init__(self, connection: "KafkaConnection", size: int) -> None:
        self.connection = connection
        self.size = size
        self.chunks: list[Buffer] | None = None
        self.held = 0
        self.ready = False

    @property
    def peer(self) -> str:
        return self.connection.peer

    @property
    def software(self) -> tuple[str, str]:
        return self.connection.software

    def introduce(self, name: str, version: str) -> None:
        self.connection.software = (name, version)

    @property
    def session(self) -> ConnectionIdentity:
        return self.connection.session

    @property
    def guard(self) -> Guard:
        return self.connection.admission.guard

    @property
    def login(self) -> Login | None:
        return self.connection.admission.login

    @property
    def room(self) -> int:
        return self.connection.room

    def hold(self, size: int) -> None:
        self.connection.hold(size)

    def answer(self, chunks: list[Buffer] | None) -> None:
        self.chunks = chunks
        self.ready = True
        self.connection.answered(self)

    def run(self, coroutine: Coroutine[Any, Any, Message]) -> asyncio.Task[Message]:
        return self.connection.run(self, coroutine)

    def violated(self, reason: str) -> None:
        self.connection.violated(reason)

    def give_up(self, reason: str) -> None:
        self.connection.close_because(reason)

    def close_after_answer(self) -> None:
        """A moment later: some clients pay no heed to an answer that comes with the end of a connection."""
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.connection.finish)

    def offended(self) -> None:
        self.connection.offended()

    def mute(self, seconds: float) -> None:
        self.connection.mute(seconds)
