"""Client instances that push metrics: the metrics requested from each, and its last push.

The table is bounded, and so are its bytes: the least recently active instance is evicted. A connection, which
belongs to one client, may have few instances, so that a client cannot push more often by changing its id.
Metrics that were not requested are dropped.

Nothing is stored; clients keep their ids and are known again after a restart.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import crc32

from posthouse.broker.telemetry.points import PushedMetrics
from posthouse.broker.telemetry.subscriptions import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    ClientIdentity,
    MetricsSubscriptions,
)
from posthouse.model.clock import Clock
from posthouse.model.errors import BadRequest, TooEarly, UnknownSubscription

MOST_CLIENTS = 10_000
MOST_BYTES = 64 * 1024 * 1024
"""Bytes of the last pushes of all clients."""
MOST_PER_CONNECTION = 16
_EARLY = 0.5
"""Clients add jitter to the interval: this fraction of it must have passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMetrics:
    """The metrics that a client should push."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


_Connection = tuple[str, str]
"""The client's address and port."""


class ClientInstance:
    __slots__ = ("asked_at", "identity", "is_over", "last", "may_ask", "pushed_at", "version", "wanted")

    def __init__(self, identity: ClientIdentity, wanted: RequestedMetrics, version: int) -> None:
        self.identity = identity
        self.wanted = wanted
        self.version = version
        self.asked_at = self.pushed_at = float("-inf")
        self.may_ask = True
        """It was told that its subscription is outdated."""
        self.is_over = False
        """It has sent its terminating push."""
        self.last: PushedMetrics | None = None


class ClientMetrics:
    """Owned by the event loop."""

    def __init__(
        self,
        subscriptions: MetricsSubscriptions,
        clock: Clock,
        export: Callable[[ClientIdentity, PushedMetrics], None],
        most: int = MOST_CLIENTS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._subscriptions = subscriptions
        self._clock = clock
        self._export = export
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._instances: dict[str, ClientInstance] = {}
        """In the order of their last activity."""
        self._connections: dict[_Connection, dict[str, None]] = {}
        """The instances last active on each connection, in that order."""

    def __iter__(self) -> Iterator[ClientInstance]:
        return iter(self._instances.values())

    def __len__(self) -> int:
        return len(self._instances)

    def ask(self, identity: ClientIdentity) -> RequestedMetrics:
        """The metrics that the client should push. Raises TooEarly if it asks again and nothing has
        changed."""
        instance, is_changed = self._instance(identity)
        now = self._clock.monotonic()
        if not (instance.may_ask or is_changed) and self._is_early(instance, instance.asked_at, now):
            raise TooEarly("the client asks again before its interval is over")
        instance.asked_at = now
        instance.may_ask = False
        return instance.wanted

    def check_push(self, identity: ClientIdentity, subscription_id: int, *, is_last: bool) -> bool:
        """Raises if the client must not push now. Otherwise returns whether `keep` is to be called with the
        push; False if no metrics are requested."""
        instance, _ = self._instance(identity)
        if instance.is_over:
            raise BadRequest("the client has already sent its last push")
        now = self._clock.monotonic()
        if not is_last and self._is_early(instance, instance.pushed_at, now):
            raise TooEarly("the client pushes again before its interval is over")
        if subscription_id != instance.wanted.subscription_id:
            instance.may_ask = True
            raise UnknownSubscription("the subscription has changed; ask for it again")
        instance.pushed_at = now
        instance.is_over = is_last
        return bool(instance.wanted.metrics)

    def keep(self, identity: ClientIdentity, pushed: PushedMetrics) -> None:
        self._export(identity, pushed)
        instance = self._instances.get(identity.client_instance_id)
        if instance is None:
            return
        self._set_last(instance, pushed)
        for oldest in self._instances.values():
            if self._bytes <= self._most_bytes:
                break
            self._set_last(oldest, None)

    def _set_last(self, instance: ClientInstance, pushed: PushedMetrics | None) -> None:
        self._bytes -= 0 if instance.last is None else instance.last.size
        self._bytes += 0 if pushed is None else pushed.size
        instance.last = pushed

    def _is_early(self, instance: ClientInstance, last: float, now: float) -> bool:
        return now - last < instance.wanted.interval_ms * _EARLY / 1000

    def _instance(self, identity: ClientIdentity) -> tuple[ClientInstance, bool]:
        """The instance, and whether it is new or had another subscription before."""
        name = identity.client_instance_id
        version = self._subscriptions.version
        instance = self._instances.get(name)
        is_changed = instance is None or instance.version != version
        if instance is None:
            self._make_room(_connection(identity))
            instance = ClientInstance(identity, self._wanted(identity), version)
        else:
            self._take_out(instance)
            if is_changed:
                instance.wanted, instance.version = self._wanted(identity), version
        instance.identity = identity
        self._instances[name] = instance
        self._connections.setdefault(_connection(identity), {})[name] = None
        if len(self._instances) > self._most:
            self._forget(next(iter(self._instances.values())))
        return instance, is_changed

    def _make_room(self, connection: _Connection) -> None:
        """Make room for one more instance of the connection. Raises TooEarly while all of them are recent."""
        names = self._connections.get(connection, {})
        if len(names) < MOST_PER_CONNECTION:
            return
        oldest = self._instances[next(iter(names))]
        last = max(oldest.asked_at, oldest.pushed_at)
        if self._is_early(oldest, last, self._clock.monotonic()):
            raise TooEarly(f"the connection has {MOST_PER_CONNECTION} client instances already")
        self._forget(oldest)

    def _forget(self, instance: ClientInstance) -> None:
        self._take_out(instance)
        self._set_last(instance, None)

    def _take_out(self, instance: ClientInstance) -> None:
        name, connection = instance.identity.client_instance_id, _connection(instance.identity)
        del self._instances[name]
        names = self._connections[connection]
        del names[name]
        if not names:
            del self._connections[connection]

    def _wanted(self, identity: ClientIdentity) -> RequestedMetrics:
        fitting = [each for each in self._subscriptions if each.fits(identity)]
        metrics = sorted(frozenset().union(*(each.metrics for each in fitting)))
        if ALL_METRICS in metrics:
            metrics = [ALL_METRICS]
        interval = min([DEFAULT_INTERVAL_MS, *(each.interval_ms for each in fitting)])
        known_by = f"{metrics}{interval}{identity.client_instance_id}"
        return RequestedMetrics(
            subscription_id=crc32(known_by.encode()) >> 1, metrics=tuple(metrics), interval_ms=interval
        )


def _connection(identity: ClientIdentity) -> _Connection:
    return identity.client_source_address, identity.client_source_port
