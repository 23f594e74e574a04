"""Limits on the deliveries of queues and groups, of those that have any."""

from typing import Final

from posthouse.broker.funnel.limiter import DeliveryLimiter
from posthouse.protocols.admin.metrics.family import Family, counter, gauge
from posthouse.protocols.admin.metrics.samples import Samples


def _families(subject: str, *labels: str) -> tuple[Family, Family, Family]:
    return (
        gauge(
            f"posthouse_{subject}_delivery_rate_limit",
            "Messages per second that all consumers together may get, where that is limited.",
            *labels,
        ),
        gauge(
            f"posthouse_{subject}_delivery_concurrency_limit",
            "Messages that all consumers together may hold, where that is limited.",
            *labels,
        ),
        counter(
            f"posthouse_{subject}_held_back_seconds_total",
            "Time in which consumers waited for the limits on deliveries.",
            *labels,
        ),
    )


OF_QUEUES: Final = _families("queue", "namespace", "queue")
OF_GROUPS: Final = _families("group", "group")


def add_limits(
    samples: Samples, families: tuple[Family, Family, Family], limiter: DeliveryLimiter, *labels: str
) -> None:
    rate, concurrency, held_back = families
    limits = limiter.limits
    if limits.rate is not None:
        samples.add(rate, limits.rate, *labels)
    if limits.concurrency is not None:
        samples.add(concurrency, limits.concurrency, *labels)
    samples.add(held_back, limiter.held_seconds, *labels)
