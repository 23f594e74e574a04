"""`message_stats` and its kin: counts, each with a rate next to it."""

from typing import Any

from posthouse.protocols.admin.rates import Counts


def with_rate(name: str, count: float, rate: float) -> dict[str, Any]:
    return {name: int(count), f"{name}_details": {"rate": round(float(rate), 3)}}


def message_stats(counts: Counts, rates: Counts) -> dict[str, Any]:
    stats: dict[str, Any] = {}
    for name in ("ack", "deliver", "get", "publish", "redeliver"):
        stats |= with_rate(name, getattr(counts, name), getattr(rates, name))
    stats |= with_rate("deliver_get", counts.deliver + counts.get, rates.deliver + rates.get)
    for name in ("deliver_no_ack", "get_empty", "get_no_ack"):
        stats |= with_rate(name, 0, 0)  # counted among the others here
    return stats


def lengths(counts: Counts, rates: Counts) -> dict[str, Any]:
    return (
        with_rate("messages", counts.ready + counts.unacked, rates.ready + rates.unacked)
        | with_rate("messages_ready", counts.ready, rates.ready)
        | with_rate("messages_unacknowledged", counts.unacked, rates.unacked)
    )
