"""The definition of a queue, as it was declared."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from posthouse.broker.funnel.limits import DeliveryLimits
from posthouse.broker.routing.table_values import from_json, to_json
from posthouse.model.errors import DataDamaged

_VERSION = 1
_LATER = ("delivery_rate", "delivery_concurrency")
"""Fields that earlier brokers do not know, and therefore refuse: stored only where they are set."""


class OverflowPolicy(StrEnum):
    """What happens when a queue has reached its length limit."""

    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DEAD_LETTER = "reject-publish-dlx"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDefinition:
    name: str
    durable: bool = True
    """Whether it is still there after a restart."""
    exclusive: bool = False
    """Only the session that declared it may use it; the queue is deleted when that session ends."""
    auto_delete: bool = False
    """The queue is deleted when its last consumer leaves."""
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    """The queue is deleted after this time without consumers or use."""
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: OverflowPolicy = OverflowPolicy.DROP_HEAD
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    max_priority: int = 0
    single_active: bool = False
    """One consumer gets everything, until it leaves and the next one takes over."""
    delivery_limit: int | None = None
    """How often a message may be delivered again before it is a dead letter."""
    delivery_rate: float | None = None
    """Messages per second, unless an operator has set other limits; see `broker/funnel`."""
    delivery_concurrency: int | None = None
    """Messages that all consumers together may hold."""
    ordered_by_key: bool = False
    """Of the messages with one key at most one is in flight."""
    is_stream: bool = False
    """Messages stay, up to `max_bytes`: each consumer reads all of them, from where it wants."""
    max_age_ms: int | None = None
    """How long messages of a stream stay."""
    segment_bytes: int | None = None
    """Retention removes the oldest messages of a stream in pieces of this size."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """As declared: for comparing and showing."""

    @property
    def is_limited(self) -> bool:
        """Whether the queue has a length limit."""
        if self.is_stream:
            return False
        return self.max_length is not None or self.max_bytes is not None

    @property
    def delivery_limits(self) -> DeliveryLimits:
        return DeliveryLimits(rate=self.delivery_rate, concurrency=self.delivery_concurrency)

    @property
    def is_transient(self) -> bool:
        """The queue does not survive a restart."""
        return not self.durable or self.exclusive

    def encode(self) -> bytes:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in _LATER:
            if values[name] is None:
                del values[name]
        values["arguments"] = to_json(dict(self.arguments))
        return json.dumps({"version": _VERSION, **values}, sort_keys=True).encode()


def decode_definition(data: bytes) -> QueueDefinition:
    try:
        values = json.loads(data)
        if values.pop("version") != _VERSION:
            raise DataDamaged("a queue of an unknown version")
        values["overflow"] = OverflowPolicy(values["overflow"])
        values["arguments"] = from_json(values["arguments"])
        if not isinstance(values["arguments"], dict):
            raise DataDamaged("the arguments of a queue are no table")
        return QueueDefinition(**values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataDamaged(f"the definition of a queue cannot be read: {error}") from None
