"""Quotas on Kafka's requests: the answer goes out at once and says for how long nothing more is heard."""

import time
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any

from posthouse.broker.access.principal import Principal
from posthouse.broker.access.quotas import Quota, Quotas
from posthouse.protocols.kafka.codec.headers import API_VERSIONS_KEY
from posthouse.protocols.kafka.codec.primitives import Message

_PRODUCE = 0
_READING = frozenset({1, 78})
"""Fetch and ShareFetch."""
_FREE = frozenset({API_VERSIONS_KEY, 17, 36})
"""What comes before anybody is known. One answer to ApiVersions is shared by all."""


class Stopwatch:
    """The time that the event loop has worked for one request; waiting costs nothing."""

    __slots__ = ("_since", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.thread_time()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.seconds += time.thread_time() - self._since


class Timed(Coroutine[Any, Any, Message]):
    """A coroutine whose steps are timed."""

    def __init__(self, inner: Coroutine[Any, Any, Message], stopwatch: Stopwatch) -> None:
        self._inner = inner
        self._stopwatch = stopwatch

    def send(self, value: Any) -> Any:
        with self._stopwatch:
            return self._inner.send(value)

    def throw(self, *error: Any) -> Any:
        with self._stopwatch:
            return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Message]:
        return self._inner.__await__()


class Throttling:
    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

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
        """In seconds, for a request that cost the loop so many; it is told to the client, too."""
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
