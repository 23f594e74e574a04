"""Requests by protocol and API."""

from typing import Final

from posthouse.protocols.admin.metrics.family import counter, histogram
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.admin.metrics.table import Rows, Table
from posthouse.protocols.request_metrics import RequestMetrics

_LABELS: Final = ("protocol", "api")
REQUESTS: Final = counter(
    "posthouse_requests_total", "Requests, and messages acknowledged or delivered.", *_LABELS
)
ERRORS: Final = counter(
    "posthouse_request_errors_total", "Requests that failed, or whose response has an error.", *_LABELS
)
SECONDS: Final = histogram(
    "posthouse_request_duration_seconds",
    "Time from reading a request until its response is made, waiting for records included.",
    *_LABELS,
)
FAMILIES: Final = (REQUESTS, ERRORS, SECONDS)


class RequestSamples:
    def __init__(self, requests: RequestMetrics) -> None:
        self._requests = requests
        self._counts = Table(REQUESTS, ERRORS)
        self._times = Table(SECONDS)

    async def collect(self, samples: Samples) -> None:
        counts, times = Rows(), Rows()
        for protocol, api, metrics in self._requests:
            counts.add((protocol, api), metrics.count, metrics.errors)
            if metrics.seconds.count:
                times.add((protocol, api), metrics.seconds)
        await self._counts.fill(samples, counts)
        await self._times.fill(samples, times)
