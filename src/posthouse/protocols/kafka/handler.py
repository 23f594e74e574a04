"""The interface of handlers: their context and their results."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from posthouse.broker.access.guard import Guard
from posthouse.broker.broker import Broker
from posthouse.model.ids import GroupId
from posthouse.model.scopes import Scope
from posthouse.protocols.kafka.codec.primitives import Buffer, Message
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.login import Login
from posthouse.protocols.kafka.nodes import Node
from posthouse.protocols.kafka.request_origins import CorrelatedOrigin
from posthouse.protocols.kafka.share_groups.share_groups import ShareGroups


class Context:
    """The context of a request besides its fields. Created per request: not a dataclass."""

    __slots__ = ("broker", "client_id", "guard", "node", "share_groups", "version")

    def __init__(
        self,
        broker: Broker,
        share_groups: ShareGroups,
        node: Node,
        version: int,
        client_id: str | None,
        guard: Guard,
    ) -> None:
        self.broker = broker
        self.share_groups = share_groups
        self.node = node
        """The node that serves the request."""
        self.version = version
        self.client_id = client_id
        self.guard = guard
        """Authorizes the client's requests."""

    @property
    def client_host(self) -> str:
        """The client's host, in Kafka's notation."""
        return ""

    @property
    def client_peer(self) -> str:
        """The client's address and port."""
        return ""

    @property
    def software(self) -> tuple[str, str]:
        """The name and the version of the client's software, if it has sent them."""
        return "", ""

    def introduce(self, name: str, version: str) -> None:
        """Set the name and version of the client's software."""
        raise NotImplementedError

    @property
    def origin(self) -> CorrelatedOrigin:
        """The connection, and the client's correlation id of the request."""
        raise NotImplementedError

    @property
    def login(self) -> Login | None:
        """The login of the connection, None if login is not required."""
        return None

    @property
    def is_relayed(self) -> bool:
        """Whether another broker has sent the request here, to the holder of a scope."""
        return False

    @property
    def room(self) -> int:
        """Free bytes of the memory budget of all connections."""
        raise NotImplementedError

    def hold(self, size: int) -> None:
        """The unfinished response takes, or will take, `size` bytes of memory."""
        raise NotImplementedError

    def close_after_answer(self) -> None:
        """Close the connection once this request is answered."""
        raise NotImplementedError

    def offended(self) -> None:
        """Count an offence: the client asked for something that is always refused, and costs time. Clients
        that do it often are slowed down."""
        raise NotImplementedError

    def require_coordinator(self) -> None:
        """Raises NeedsHolder in a broker that does not coordinate: then the request is relayed to the one
        that does."""

    def require_holder_of(self, group: GroupId) -> None:
        """Raises NeedsHolder in a broker that does not hold the scope of the group: then the request is
        relayed to the one that does. For requests that clients send to any broker."""

    def require_coordinator_of(self, transactional_id: str, *, in_order: bool = False) -> None:
        """Raises NeedsHolder in a broker that does not coordinate the transactional id: then the request is
        relayed to the one that does. Clients that do not look for it send their requests to any broker.

        Raises NotCoordinator instead if the request has to come `in_order` with others of the same client:
        one that is relayed has no order with those that the client sends to the coordinator itself."""

    def is_checked_by_holder_of(self, group: GroupId) -> bool:
        """Whether the broker that holds the scope of the group has relayed the request to that which
        coordinates the transaction.
        Raises NotCoordinator if another one has."""
        return False

    async def ask_holder(self, scope: Scope, key: int, request: Message) -> Message:
        """Ask another broker, which holds the scope, in the name of the client: the response to a request of
        the API with this key. Raises Unavailable."""
        raise NotImplementedError

    def count_error(self) -> None:
        """Something of this request failed. Only for handlers that declare `counts_errors`: hot paths."""
        raise NotImplementedError


class Deferred:
    """A response that `finish` returns once `future` is done: cheaper than a task.

    `finish` returns None if the client expects no response.
    """

    __slots__ = ("finish", "future")

    def __init__(self, future: asyncio.Future[Any], finish: Callable[[Any], Message | None]) -> None:
        self.future = future
        self.finish = finish


Answer: TypeAlias = Message | Deferred | Coroutine[Any, Any, Message | None] | None
RequestT = TypeVar("RequestT", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler(Generic[RequestT]):
    """The implementation of one API.

    `handle` is called as soon as the request is read, in the order of arrival. It returns the response, or a
    `Deferred` so that the next request can be started, or a coroutine; then the next request waits. None is
    for clients that expect no response. `refuse` returns the response to a request that failed as a whole.
    """

    key: int
    handle: Callable[[Context, RequestT], Answer]
    refuse: Callable[[Context, RequestT, ErrorCode, str], Message]
    counts_errors: bool = False
    """Whether `handle` calls `Context.count_error`. Responses of others are searched for error codes."""
    encode: Callable[[int, Message], list[Buffer]] | None = None
    """None: the codec's encoder."""
    is_refusing: bool = False
    """Whether `handle` refuses every request."""
