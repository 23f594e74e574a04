"""What `status` and `top` show: the broker at one moment, and its rates between two moments."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posthouse.client.admin_client import AdminClient

_COUNTERS = {
    "records_in": "posthouse_topic_records_in_total",
    "bytes_in": "posthouse_topic_bytes_in_total",
    "records_out": "posthouse_topic_records_out_total",
    "bytes_out": "posthouse_topic_bytes_out_total",
    "published": "posthouse_queue_published_messages_total",
    "delivered": "posthouse_queue_delivered_messages_total",
    "acked": "posthouse_queue_acked_messages_total",
    "redelivered": "posthouse_queue_redelivered_messages_total",
    "dead_lettered": "posthouse_queue_dead_lettered_messages_total",
}
_STUCK = ("stalled", "unconsumed")
_WITH_MESSAGES = (*_STUCK, "consumed")
_LOOKED_AT = 1000
"""Most groups, transactions, and queues in each state, so that a look is cheap for a broker with many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counters since the start of the broker; none where it does not tell them."""

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
    return Snapshot(
        overview=client.get("/v1/overview"),
        groups=sorted(groups, key=lambda each: -each["lag"])[:most],
        queues=sorted(queues, key=_queue_order)[:most],
        transactions=sorted(transactions, key=lambda each: -(each["age_ms"] or 0))[:most],
        disk=client.get("/v1/disk", limit=most),
        totals=read_totals(client),
        storage=client.get("/v1/storage"),
    )


def read_totals(client: AdminClient) -> Totals:
    """From the metrics. A user may be allowed less than to read those; then there are no rates."""
    from posthouse.client.errors import CallRefused

    try:
        found = sums(client.text("/metrics"))
    except CallRefused:
        found = {}
    counts = {name: found[metric] for name, metric in _COUNTERS.items() if metric in found}
    return Totals(counts=counts, read_at=time.monotonic())


def sums(text: str) -> dict[str, float]:
    """The values of each metric added up, from the text that Prometheus reads."""
    found: dict[str, float] = {}
    # A name in a label may contain what `splitlines` takes for the end of a line, such as U+2028.
    for line in text.split("\n"):
        if line and not line.startswith("#"):
            labelled, _, value = line.rpartition(" ")
            name = labelled.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found


def _queue_order(queue: dict[str, Any]) -> tuple[bool, int, str]:
    return (queue["state"] not in _STUCK, -(queue["ready"] + queue["unacked"]), queue["name"])
