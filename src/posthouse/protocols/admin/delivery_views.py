"""The limits of a subscription, as people set and see them."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.funnel.limiter import DeliveryLimiter
from posthouse.broker.funnel.limits import HIGHEST_CONCURRENCY, DeliveryLimits
from posthouse.model.rates import HIGHEST, LOWEST

_RATE: Final = Meta(ge=LOWEST, le=HIGHEST)
_CONCURRENCY: Final = Meta(ge=1, le=HIGHEST_CONCURRENCY)


class LimitsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At least one of them. What is left out, or null, is not limited."""

    rate: Annotated[float, _RATE] | None = None
    concurrency: Annotated[int, _CONCURRENCY] | None = None

    def limits(self) -> DeliveryLimits:
        return DeliveryLimits(rate=self.rate, concurrency=self.concurrency)


class LimitsView(msgspec.Struct, frozen=True, kw_only=True):
    rate: Annotated[
        float | None,
        Meta(description="Messages per second to all consumers together, redeliveries included."),
    ]
    burst: Annotated[
        float | None,
        Meta(description="Messages that may come at once after a pause: those of a tenth of a second."),
    ]
    concurrency: Annotated[
        int | None, Meta(description="Messages that all consumers together may hold unsettled.")
    ]
    held_back_seconds: Annotated[
        float,
        Meta(description="How long consumers have waited for these limits, since the broker has them."),
    ]


class GroupLimitsView(LimitsView, frozen=True, kw_only=True):
    applies: Annotated[
        bool,
        Meta(
            description="False while the group has members that fetch as Kafka's consumer groups do, without "
            "naming their group: set quotas of their client ids or users instead."
        ),
    ]


def limits_view(limits: DeliveryLimits, limiter: DeliveryLimiter | None) -> LimitsView | None:
    """None without limits. There is no limiter before the first delivery to a group."""
    if limits.is_empty:
        return None
    return LimitsView(
        rate=limits.rate,
        burst=None if limits.rate is None else limits.burst,
        concurrency=limits.concurrency,
        held_back_seconds=0.0 if limiter is None else limiter.held_seconds,
    )
