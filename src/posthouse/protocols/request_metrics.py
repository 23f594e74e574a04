"""Requests by protocol and API: how many, how long they took, how many failed.

The names of APIs are those of the protocols' tables, so that there are never more than those have entries.
"""

from collections.abc import Iterator

from posthouse.model.histogram import SECONDS, Histogram


class ApiMetrics:
    """Of one API. Owned by the event loop; incremented in place."""

    __slots__ = ("errors", "seconds", "untimed")

    def __init__(self) -> None:
        self.seconds = Histogram(SECONDS)
        """From the moment that a request is read until its response is made, waiting included."""
        self.untimed = 0
        """Those without a time of their own: acknowledgements, deliveries, requests without a response."""
        self.errors = 0

    @property
    def count(self) -> int:
        return self.seconds.count + self.untimed


class RequestMetrics:
    """Of all front ends."""

    def __init__(self) -> None:
        self._apis: dict[tuple[str, str], ApiMetrics] = {}

    def of(self, protocol: str, api: str) -> ApiMetrics:
        """To be kept by the caller: hot paths do not look it up."""
        found = self._apis.get((protocol, api))
        if found is None:
            found = self._apis[protocol, api] = ApiMetrics()
        return found

    def __iter__(self) -> Iterator[tuple[str, str, ApiMetrics]]:
        """Protocol, API and numbers of those that were asked for at least once."""
        for (protocol, api), metrics in list(self._apis.items()):
            if metrics.count or metrics.errors:
                yield protocol, api, metrics
