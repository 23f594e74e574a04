"""Requests by protocol and API."""

from typing import Final

from posthouse.protocols.admin.metrics.family import counter, histogram
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.admin.metrics.table import Table
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
        counted = list(self._requests)
        timed = [each for each in counted if each[2].seconds.count]
        await self._counts.fill(
            samples,
            [(protocol, api) for protocol, api, _ in counted],
            [(metrics.count, metrics.errors) for _, _, metrics in counted],
        )
        await self._times.fill(
            samples,
            [(protocol, api) for protocol, api, _ in timed],
            [(metrics.seconds,) for _, _, metrics in timed],
        )
