"""The companion of a client's connection: the way of its requests to the broker that holds a scope.

The client's requests stay in order: the other broker answers those on the companion in their order, and the
connection sends all responses in the order of its requests. A request that this broker answers itself may be
started before an earlier one that is relayed has been answered.
"""

import asyncio
from collections.abc import Callable
from struct import Struct

from posthouse.model.address import Address
from posthouse.model.proven_user import ProvenUser
from posthouse.model.scopes import Scope
from posthouse.protocols.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    produce,
    share_acknowledge,
    share_fetch,
    txn_offset_commit,
)
from posthouse.protocols.noop import noop
from posthouse.protocols.relay import RelayedConnection

IDLE_SECONDS = 30.0
"""A companion is closed after this time without a request in flight."""
_api_key = Struct(">h").unpack_from

OpenCompanion = Callable[[Address, ProvenUser | None, Callable[[], None], Scope], RelayedConnection]
"""See `Relay.open`, for the listener of the connection."""


_BINDING = frozenset(
    each.HANDLER.key
    for each in (
        add_offsets_to_txn,
        add_partitions_to_txn,
        end_txn,
        produce,
        share_acknowledge,
        share_fetch,
        txn_offset_commit,
    )
)
"""APIs with an effect that depends on the connection: share sessions end with it, and the requests of one
transaction use one."""


class Companion:
    """Connected when a request is relayed, and again when one is relayed after it was idle."""

    __slots__ = (
        "_answered_at",
        "_connection",
        "_grown",
        "_in_flight",
        "_is_bound",
        "_is_paused",
        "_open",
        "_scope",
        "_time",
    )

    def __init__(
        self, open: OpenCompanion, scope: Scope, grown: Callable[[], None], time: Callable[[], float]
    ) -> None:
        """See `Relay.open` for `grown`. `time` is that of the event loop."""
        self._open = open
        self._scope = scope
        self._grown = grown
        self._time = time
        self._connection: RelayedConnection | None = None
        self._in_flight = 0
        self._answered_at = 0.0
        self._is_bound = False
        """Something at the other broker depends on this connection."""
        self._is_paused = False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def in_flight(self) -> int:
        """Requests without an answer."""
        return self._in_flight

    def send(self, request: memoryview, client: Address, user: ProvenUser | None) -> asyncio.Future[bytes]:
        if self._connection is None:
            self._connection = self._open(client, user, self._grown, self._scope)
        self._in_flight += 1
        self._is_bound = self._is_bound or _api_key(request)[0] in _BINDING
        answered = self._connection.send(request)
        answered.add_done_callback(self._answered)
        return answered

    def _answered(self, answered: asyncio.Future[bytes]) -> None:
        self._in_flight -= 1
        self._answered_at = self._time()

    @property
    def held(self) -> int:
        """Bytes of memory for a response that is incomplete."""
        return 0 if self._connection is None else self._connection.held

    def regulate(self, *, pause: bool) -> None:
        """Pause or resume reading of responses."""
        if self._connection is None or pause is self._is_paused:
            return
        self._is_paused = pause
        if pause:
            self._connection.pause_reading()
        else:
            self._connection.resume_reading()

    @property
    def is_idle(self) -> bool:
        is_used = self._in_flight > 0 or self._is_bound
        return not is_used and self._time() - self._answered_at > IDLE_SECONDS

    def close(self) -> None:
        """The client's connection is lost: drop all references to it."""
        self._disconnect()
        self._grown = noop

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._is_paused = False
