"""Quotas on Kafka's requests: the response is sent at once with the throttle time, and reading pauses."""

from typing import Any

from posthouse.broker.access.principal import Principal
from posthouse.broker.access.quotas import Quota, Quotas
from posthouse.protocols.kafka.codec.headers import API_VERSIONS_KEY
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.throttle_timer import Waits

_PRODUCE = 0
_READING = frozenset({1, 78})
"""Fetch and ShareFetch."""
_FREE = frozenset({API_VERSIONS_KEY, 17, 36})
"""APIs used before login. One answer to ApiVersions is shared by all clients."""


class Throttling:
    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    @property
    def waits(self) -> Waits:
        """Counts the time that clients wait."""
        return self._quotas

    @property
    def is_on(self) -> bool:
        return not self._quotas.is_empty

    def delay(
        self,
        key: int,
        principal: Principal,
        client_id: str | None,
        size: int,
        response: Message | None,
        seconds: float,
    ) -> float:
        """The throttle time in seconds, for a request that took `seconds` of the event loop; also set in the
        response."""
        if key in _FREE:
            return 0.0
        user, client = principal.name, client_id or ""
        take = self._quotas.take
        delay = take(Quota.TIME, user, client, seconds)
        if key == _PRODUCE:
            delay = max(delay, take(Quota.WRITTEN, user, client, size))
        elif key in _READING:
            delay = max(delay, take(Quota.READ, user, client, _bytes_read(response)))
        if delay > 0 and response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(1, int(delay * 1000))
        return delay


def _bytes_read(response: Any) -> int:
    return sum(
        len(partition.records or b"") for topic in response.responses for partition in topic.partitions
    )
