"""What a handler is, what it is given and what it may return."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from posthouse.broker.broker import Broker
from posthouse.broker.transactions.origins import Origin
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.settings import Address

NODE_ID = 1
"""There is one node; it leads every partition, controls and coordinates everything."""


class Context:
    """What a handler may know of a request beyond its fields. One is made per request: no dataclass."""

    __slots__ = ("broker", "client_id", "node", "version")

    def __init__(self, broker: Broker, node: Address, version: int, client_id: str | None) -> None:
        self.broker = broker
        self.node = node
        self.version = version
        self.client_id = client_id

    @property
    def client_host(self) -> str:
        """Where the request came from, written as Kafka does."""
        return ""

    @property
    def origin(self) -> Origin:
        """The connection, and the client's number of the request on it."""
        raise NotImplementedError


class Deferred:
    """A response that is made by `finish` once `future` is done: cheaper than a task.

    `finish` returns None where the client expects no response.
    """

    __slots__ = ("finish", "future")

    def __init__(self, future: asyncio.Future[Any], finish: Callable[[Any], Message | None]) -> None:
        self.future = future
        self.finish = finish


Answer: TypeAlias = Message | Deferred | Coroutine[Any, Any, Message] | None
RequestT = TypeVar("RequestT", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler(Generic[RequestT]):
    """How one API is served.

    `handle` runs as soon as the request is read, in the order of arrival. It answers at once, or with a
    `Deferred` so that the next request can follow, or with a coroutine; then the next request waits.
    None is for clients that expect no response.
    `refuse` makes the response that says that all of a request failed.
    """

    key: int
    handle: Callable[[Context, RequestT], Answer]
    refuse: Callable[[Context, RequestT, ErrorCode, str], Message]
