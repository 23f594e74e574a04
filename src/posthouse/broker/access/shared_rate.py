"""A rate that all brokers of a cluster grant together: each of them grants the share that its clients need.

Shares are max-min fair. A broker whose clients use less than an equal share leaves the rest to those whose
clients wait. So a client with one connection gets the whole rate while others of its quota are idle.
"""

from collections.abc import Sequence

from posthouse.broker.access.token_bucket import TokenBucket
from posthouse.broker.cluster_usage import ClusterUsage
from posthouse.model.usage import Limited, Use

SHARE_SECONDS = 0.5
"""How long a share is kept before it is computed again: about as long as others need for their reports."""
_AVERAGED_SECONDS = 2.0
_LEAST_MEASURED_SECONDS = 0.25
_SOON_SECONDS = 1.0
"""A client that has waited takes more within this time, or wants no more."""


class SharedRate:
    """A quota of one entity at this broker. Owned by the event loop."""

    __slots__ = (
        "_average",
        "_bucket",
        "_cluster",
        "_kind",
        "_measured_at",
        "_name",
        "_rate",
        "_share_until",
        "_taken",
        "_wants_more_until",
    )

    def __init__(self, rate: float, now: float, cluster: ClusterUsage, kind: Limited, name: str) -> None:
        self._rate = rate
        self._cluster = cluster
        self._kind = kind
        self._name = name
        self._bucket = TokenBucket(self._share(), now)
        self._share_until = now + SHARE_SECONDS
        self._taken = 0.0
        self._average = 0.0
        self._measured_at = now
        self._wants_more_until = now

    def take(self, amount: float, now: float) -> float:
        """Take the amount; returns the throttle time in seconds."""
        if now >= self._share_until:
            self._bucket.rate = self._share()  # debts stay
            self._share_until = now + SHARE_SECONDS
        delay = self._bucket.take(amount, now)
        self._taken += amount
        if delay:
            self._wants_more_until = now + delay + _SOON_SECONDS
        return delay

    def use(self, now: float, least: float) -> Use | None:
        """What clients of this broker take: an average, because batches come in bursts. None if they take
        less than that part of the rate, and none of them waits."""
        if not self._taken and not self._average and now >= self._wants_more_until:
            self._measured_at = now
            return None
        seconds = now - self._measured_at
        if seconds >= _LEAST_MEASURED_SECONDS:
            weight = min(1.0, seconds / _AVERAGED_SECONDS)
            average = self._average + (self._taken / seconds - self._average) * weight
            self._average = average if average >= 1 else 0.0
            self._taken = 0.0
            self._measured_at = now
        wants_more = now < self._wants_more_until
        if not wants_more and self._average < self._rate * least:
            return None
        return Use(self._kind, self._name, self._average, self._rate, wants_more)

    def _share(self) -> float:
        return fair_share(self._rate, self._cluster.needs(self._kind, self._name))


def fair_share(rate: float, others: Sequence[float]) -> float:
    """Of a broker whose clients take all that they get, while others need so much."""
    left, sharers = rate, len(others) + 1
    for need in sorted(others):
        if need >= left / sharers:
            break
        left -= need
        sharers -= 1
    return left / sharers
