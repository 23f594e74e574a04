"""What `status` and `top` show: the broker at one moment, and its rates between two moments."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posthouse.client.admin_client import AdminClient

_COUNTERS = (
    *("records_in", "bytes_in", "records_out", "bytes_out"),
    *("published", "delivered", "acked", "redelivered", "dead_lettered"),
)
_STUCK = ("stalled", "unconsumed")
_WITH_MESSAGES = (*_STUCK, "consumed")
_LOOKED_AT = 1000
"""Most groups, transactions, and queues in each state, so that a look is cheap for a broker with many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counters since the start of the broker."""

    counts: dict[str, float]
    read_at: float

    def rates(self, earlier: Totals) -> dict[str, float]:
        """By second. A counter that went back is that of a broker that was started again."""
        seconds = self.read_at - earlier.read_at
        if seconds <= 0:
            return {}
        return {
            name: max(count - earlier.counts.get(name, count), 0) / seconds
            for name, count in self.counts.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    overview: dict[str, Any]
    groups: list[dict[str, Any]]
    """Those with a lag, the largest first."""
    queues: list[dict[str, Any]]
    """Those with messages: first those that no consumer takes, then by the number of messages."""
    transactions: list[dict[str, Any]]
    """The open ones, the oldest first."""
    disk: dict[str, Any]
    totals: Totals
    storage: dict[str, Any]

    def as_json(self, rates: dict[str, float]) -> dict[str, Any]:
        return {
            **self.overview,
            "rates": {name: round(rate, 1) for name, rate in rates.items()},
            "lagging_groups": self.groups,
            "queues_with_messages": self.queues,
            "open_transactions": self.transactions,
            "disk": self.disk,
            "storage": self.storage,
        }


def take_snapshot(client: AdminClient, *, most: int) -> Snapshot:
    """With at most `most` groups, queues, transactions and logs, the worst of those that are looked at."""
    groups = [each for each in client.items("/v1/groups", most=_LOOKED_AT) if each["lag"]]
    queues = [
        each for state in _WITH_MESSAGES for each in client.items("/v1/queues", most=_LOOKED_AT, state=state)
    ]
    transactions = list(client.items("/v1/transactions", most=_LOOKED_AT))
    overview = client.get("/v1/overview")
    return Snapshot(
        overview=overview,
        totals=totals_of(overview),
        groups=sorted(groups, key=lambda each: -each["lag"])[:most],
        queues=sorted(queues, key=_queue_order)[:most],
        transactions=sorted(transactions, key=lambda each: -(each["age_ms"] or 0))[:most],
        disk=client.get("/v1/disk", limit=most),
        storage=client.get("/v1/storage"),
    )


def totals_of(overview: dict[str, Any]) -> Totals:
    """As they are now: the overview was read just before."""
    traffic = overview["traffic"]
    return Totals(counts={name: traffic[name] for name in _COUNTERS}, read_at=time.monotonic())


def _queue_order(queue: dict[str, Any]) -> tuple[bool, int, str]:
    return (queue["state"] not in _STUCK, -(queue["ready"] + queue["unacked"]), queue["name"])
