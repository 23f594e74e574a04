"""What a front end without sessions of its own does to queues and exchanges, by the rules of AMQP.

The management API works as a client on a channel inside the broker: declarations are checked, compared and
refused, and permissions asked for, just as if they had come by AMQP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol

from posthouse.broker.access.guard import Guard
from posthouse.broker.queues.namespace import Namespace
from posthouse.broker.routing.definitions import Binding

_NOT_IMPLEMENTED: Final = 540


class DirectRefusal(Exception):
    """`code` is AMQP's reply code: 403 without permission, 404 where something is missing, and others."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class After(Enum):
    """What happens to messages after they were got."""

    ACK = auto()
    REQUEUE = auto()
    REJECT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class GotMessage:
    exchange: str
    routing_key: str
    redelivered: bool
    properties: Mapping[str, Any]
    """As JSON has them; only those that are set."""
    body: bytes
    left: int
    """Messages that were ready behind it."""


class DirectChannel(Protocol):
    """All methods raise DirectRefusal, and PosthouseError where the broker is at fault."""

    async def declare_queue(
        self, name: str, *, durable: bool, auto_delete: bool, arguments: Mapping[str, Any]
    ) -> None: ...

    async def delete_queue(self, name: str, *, if_unused: bool, if_empty: bool) -> None: ...

    async def purge(self, name: str) -> None: ...

    async def declare_exchange(
        self,
        name: str,
        kind: str,
        *,
        durable: bool,
        auto_delete: bool,
        internal: bool,
        arguments: Mapping[str, Any],
    ) -> None: ...

    async def delete_exchange(self, name: str, *, if_unused: bool) -> None: ...

    async def bind(self, binding: Binding) -> None: ...

    async def unbind(self, binding: Binding) -> None: ...

    async def publish(self, exchange: str, key: str, properties: Mapping[str, Any], body: bytes) -> bool:
        """Whether any queue took the message, which is durable then."""

    async def get(self, queue: str, most: int, most_bytes: int, after: After) -> Sequence[GotMessage]: ...


class DirectChannelOpener(Protocol):
    """What a protocol with channels offers."""

    def open(self, guard: Guard, peer: str, namespace: Namespace) -> DirectChannel: ...


class DirectChannels:
    """Filled when the front ends are built. Owned by the event loop."""

    def __init__(self) -> None:
        self._opener: DirectChannelOpener | None = None

    def serve(self, opener: DirectChannelOpener) -> None:
        self._opener = opener

    def open(self, guard: Guard, peer: str, namespace: Namespace) -> DirectChannel:
        """Raises DirectRefusal where no protocol with channels is served."""
        if self._opener is None:
            raise DirectRefusal(_NOT_IMPLEMENTED, "this broker does not serve AMQP, whose rules would apply")
        return self._opener.open(guard, peer, namespace)
