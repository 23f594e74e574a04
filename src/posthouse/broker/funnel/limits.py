"""The limits of one subscription: a queue, or a group."""

import json
from dataclasses import dataclass

from posthouse.model.errors import DataDamaged, InvalidConfig
from posthouse.model.rates import HIGHEST, LOWEST

_VERSION = 1
HIGHEST_CONCURRENCY = 1_000_000
BURST_SECONDS = 0.1
"""Tokens are saved up for this long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryLimits:
    rate: float | None = None
    """Messages per second, redeliveries included."""
    concurrency: int | None = None
    """How many messages all consumers together may hold unsettled."""

    @property
    def burst(self) -> float:
        """Messages that may be handed out at once after a pause; 0 without a rate."""
        return 0.0 if self.rate is None else max(1.0, self.rate * BURST_SECONDS)

    @property
    def is_empty(self) -> bool:
        return self.rate is None and self.concurrency is None

    def check(self) -> None:
        """Raises InvalidConfig."""
        if self.rate is not None and not LOWEST <= self.rate <= HIGHEST:
            raise InvalidConfig(f"a rate must be between {LOWEST} and {HIGHEST:.0f} messages per second")
        if self.concurrency is not None and not 1 <= self.concurrency <= HIGHEST_CONCURRENCY:
            raise InvalidConfig(f"a concurrency must be between 1 and {HIGHEST_CONCURRENCY}")

    def encode(self) -> bytes:
        values = {"version": _VERSION, "rate": self.rate, "concurrency": self.concurrency}
        return json.dumps(values, sort_keys=True).encode()


UNLIMITED = DeliveryLimits()


def decode_limits(data: bytes) -> DeliveryLimits:
    """Raises DataDamaged."""
    try:
        values = json.loads(data)
        if values["version"] != _VERSION:
            raise DataDamaged("delivery limits of an unknown version")
        limits = DeliveryLimits(rate=values["rate"], concurrency=values["concurrency"])
        limits.check()
    except (ValueError, KeyError, TypeError, InvalidConfig, RecursionError) as error:
        raise DataDamaged(f"stored delivery limits cannot be read: {error}") from None
    return limits
