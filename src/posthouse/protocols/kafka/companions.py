"""The companions of a client's connection, one for each scope whose holder it needs."""

import asyncio
from collections.abc import Callable
from typing import Any

from posthouse.model.address import Address
from posthouse.model.errors import Unavailable
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import Scope
from posthouse.protocols.kafka.companion import Companion, OpenCompanion
from posthouse.protocols.noop import noop

MOST_IN_FLIGHT = 100
"""Requests that are relayed at the same time. Flow control counts their bytes; each needs memory besides, and
they may wait long for a broker."""
MOST_COMPANIONS = 8
"""Of one connection. Clients use few groups on one."""


class Companions:
    __slots__ = ("_by_scope", "_grown", "_is_closed", "_open", "_time")

    def __init__(self, open: OpenCompanion, grown: Callable[[], None], time: Callable[[], float]) -> None:
        """See `Relay.open` for `grown`. `time` is that of the event loop."""
        self._open = open
        self._grown = grown
        self._time = time
        self._by_scope: dict[Scope, Companion] = {}
        """The one that was used last is the last."""
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return any(each.is_connected for each in self._by_scope.values())

    @property
    def is_full(self) -> bool:
        """Whether no request of the client may be started until one is answered."""
        return sum(each.in_flight for each in self._by_scope.values()) >= MOST_IN_FLIGHT

    def send(
        self, request: memoryview, scope: Scope, client: Address, user: ProvenUser | None
    ) -> asyncio.Future[bytes]:
        if self._is_closed:  # while the request was in work
            return _failed("the client's connection is closed")
        companion = self._by_scope.pop(scope, None)
        if companion is None:
            if len(self._by_scope) >= MOST_COMPANIONS and not self._close_one():
                return _failed("the connection uses too many groups at the same time")
            companion = Companion(self._open, scope, self._grown, self._time)
        self._by_scope[scope] = companion
        return companion.send(request, client, user)

    def _close_one(self) -> bool:
        """The one that was not used for the longest time, of those without a request in flight."""
        for scope, companion in self._by_scope.items():
            if not companion.in_flight:
                companion.close()
                del self._by_scope[scope]
                return True
        return False

    async def settled(self, answered: asyncio.Future[bytes]) -> Any:
        """Wait for the answer to the newest request. Cancelling it does not cancel the answer."""
        await asyncio.wait([answered])

    @property
    def held(self) -> int:
        """Bytes of memory for responses that are incomplete."""
        return sum(each.held for each in self._by_scope.values())

    def regulate(self, *, pause: bool) -> None:
        """Pause or resume reading of responses."""
        for each in self._by_scope.values():
            each.regulate(pause=pause)

    def close_idle(self) -> None:
        for scope, companion in list(self._by_scope.items()):
            if companion.is_idle:
                companion.close()
                del self._by_scope[scope]

    def close(self) -> None:
        """The client's connection is closed: drop all references to it."""
        self._is_closed = True
        for each in self._by_scope.values():
            each.close()
        self._by_scope.clear()
        self._grown = noop


def _failed(reason: str) -> asyncio.Future[bytes]:
    failed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    failed.set_exception(Unavailable(reason))
    return failed
