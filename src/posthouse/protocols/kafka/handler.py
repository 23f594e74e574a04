"""What a handler is, what it is given and what it may return."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from posthouse.broker.access.guard import Guard
from posthouse.broker.broker import Broker
from posthouse.protocols.kafka.codec.primitives import Buffer, Message
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.login import Login
from posthouse.protocols.kafka.request_origins import CorrelatedOrigin
from posthouse.protocols.kafka.share_groups.share_groups import ShareGroups
from posthouse.settings import Address

NODE_ID = 1
"""There is one node; it leads every partition, controls and coordinates everything."""


class Context:
    """What a handler may know of a request beyond its fields. One is made per request: no dataclass."""

    __slots__ = ("broker", "client_id", "guard", "node", "share_groups", "version")

    def __init__(
        self,
        broker: Broker,
        share_groups: ShareGroups,
        node: Address,
        version: int,
        client_id: str | None,
        guard: Guard,
    ) -> None:
        self.broker = broker
        self.share_groups = share_groups
        self.node = node
        self.version = version
        self.client_id = client_id
        self.guard = guard
        """Says what the client may do."""

    @property
    def client_host(self) -> str:
        """Where the request came from, written as Kafka does."""
        return ""

    @property
    def client_peer(self) -> str:
        """The client's address and port."""
        return ""

    @property
    def software(self) -> tuple[str, str]:
        """The name and the version of the client's software, once it has told."""
        return "", ""

    def introduce(self, name: str, version: str) -> None:
        """The client has told what software it is."""
        raise NotImplementedError

    @property
    def origin(self) -> CorrelatedOrigin:
        """The connection, and the client's number of the request on it."""
        raise NotImplementedError

    @property
    def login(self) -> Login | None:
        """How the connection logs in, None where nobody has to."""
        return None

    @property
    def room(self) -> int:
        """Bytes that there is memory for, for all connections together."""
        raise NotImplementedError

    def hold(self, size: int) -> None:
        """The answer, which is not finished, takes so many bytes already or is about to."""
        raise NotImplementedError

    def close_after_answer(self) -> None:
        """The connection ends as soon as this request is answered."""
        raise NotImplementedError

    def offended(self) -> None:
        """The client asked for what is never given, and costs time all the same. Whoever does it often is
        slowed down."""
        raise NotImplementedError

    def count_error(self) -> None:
        """Of this request something failed. Only for hot paths: others are recognised by their responses."""
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
    encode: Callable[[int, Message], list[Buffer]] | None = None
    """None: the codec's own."""
