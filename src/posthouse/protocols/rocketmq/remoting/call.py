"""One request, until it is answered."""

import asyncio
from typing import Final, Protocol

from posthouse.broker.access.guard import Guard
from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.errors import AccessRefused
from posthouse.model.topics import Topic
from posthouse.protocols.request_metrics import ApiMetrics
from posthouse.protocols.rocketmq.clients import ClientConnection
from posthouse.protocols.rocketmq.codec.codes import ResponseCode
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.names import RETRY, check_group_name, topic_name
from posthouse.protocols.rocketmq.remoting.errors import Refused, code_of, remark_of
from posthouse.protocols.rocketmq.remoting.server import RemotingServer
from posthouse.settings import Address

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_LONGEST_NUMBER: Final = 20
_LONGEST_SURE: Final = 19
"""Shorter texts of digits have no more than 63 bits."""
_TRUE: Final = ("true", "1")
"""The latter of clients in C++."""


class Caller(ClientConnection, Protocol):
    """The connection of a client, as far as requests need it."""

    server: RemotingServer
    guard: Guard
    host: bytes
    """The client's address, as it is in messages."""
    own_host: bytes
    address: Address
    """Where clients reach the broker."""
    is_finishing: bool
    """Whether the broker stops: nobody is to wait for anything any more."""

    reading: asyncio.Semaphore
    """Held by pulls that read: otherwise the messages of many pulls would be in memory at once."""
    searching: asyncio.Semaphore
    """The same for searches, which may take seconds: pulls do not wait for them."""

    def answer(self, call: "Call", command: Command) -> None: ...

    async def writable(self) -> None:
        """Wait until the client has read what it was sent."""

    def introduce(self, client_id: str) -> None:
        """The name that the client has given itself."""


def check_allowed(call: "Call", operation: Operation, kind: Kind, name: str) -> None:
    """`name` is that of the log. Raises AccessRefused."""
    if not call.connection.guard.allows(operation, kind, name):
        raise AccessRefused(f"no permission to {operation} {kind} {name!r}")


def check_may_consume(call: "Call", group: str) -> None:
    """Raises InvalidTopicName and AccessRefused."""
    check_group_name(group)
    if not call.connection.guard.allows(Operation.READ, Kind.GROUP, group):
        raise AccessRefused(f"no permission to consume in the group {group!r}")


def check_may_describe(call: "Call", name: str) -> None:
    """`name` is the topic's in RocketMQ. Raises AccessRefused and InvalidTopicName."""
    if not is_permitted(call, Operation.DESCRIBE, name):
        raise AccessRefused(f"no permission to describe topic {name!r}")


def is_permitted(call: "Call", operation: Operation, name: str) -> bool:
    """On a topic, by its name in RocketMQ. Topics of retries are for those who may consume in their group:
    clients use them without being told to. Raises InvalidTopicName."""
    guard = call.connection.guard
    if name.startswith(RETRY):
        return guard.allows(Operation.READ, Kind.GROUP, name.removeprefix(RETRY))
    return guard.allows(operation, Kind.TOPIC, topic_name(name))


def readable_topic(call: "Call", name: str) -> Topic:
    """`name` is the topic's in RocketMQ. Raises AccessRefused before it is known whether there is a topic,
    UnknownTopic and InvalidTopicName."""
    return _permitted(call, name, Operation.READ)


def described_topic(call: "Call", name: str) -> Topic:
    """The same for those who want to know about the topic."""
    return _permitted(call, name, Operation.DESCRIBE)


def _permitted(call: "Call", name: str, operation: Operation) -> Topic:
    if not is_permitted(call, operation, name):
        raise AccessRefused(f"no permission to {operation} topic {name!r}")
    return call.connection.server.topics.get(name)


class Call:
    """Owned by the event loop. It is answered once, at any time; a oneway request in no frame."""

    __slots__ = ("_is_answered", "begun", "connection", "metrics", "request", "size")

    def __init__(
        self, connection: Caller, request: Command, size: int, metrics: ApiMetrics, begun: float
    ) -> None:
        self.connection = connection
        self.request = request
        self.size = size
        self.metrics = metrics
        self.begun = begun
        self._is_answered = False

    def text(self, name: str) -> str:
        value = self.request.fields.get(name)
        if value is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the field {name} is missing")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        text = self.request.fields.get(name)
        if text is None:
            if default is not None:
                return default
            text = self.text(name)
        if text.isdecimal() and len(text) < _LONGEST_SURE:  # nearly always: five times in each send
            return int(text)
        if len(text) <= _LONGEST_NUMBER and text.removeprefix("-").isdecimal():
            found = int(text)
            if _LEAST <= found <= _MOST:
                return found
        raise Refused(ResponseCode.SYSTEM_ERROR, f"the field {name} is {text[:50]!r}, and not a number")

    def truth(self, name: str) -> bool:
        return self.request.fields.get(name, "").lower() in _TRUE

    def answer(
        self,
        code: int = ResponseCode.SUCCESS,
        *,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        assert not self._is_answered, "a request has one answer"
        self._is_answered = True
        self.connection.answer(self, self.request.answer(code, remark=remark, fields=fields, body=body))

    def fail(self, error: BaseException) -> None:
        self.metrics.errors += 1
        self.answer(code_of(error), remark=remark_of(error))
