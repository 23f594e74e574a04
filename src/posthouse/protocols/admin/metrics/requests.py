"""Requests by protocol and API."""

from typing import Final

from posthouse.protocols.admin.metrics.family import counter, histogram
from posthouse.protocols.admin.metrics.samples import Samples
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


async def collect(requests: RequestMetrics, samples: Samples) -> None:
    for protocol, api, metrics in requests:
        samples.add(REQUESTS, metrics.count, protocol, api)
        samples.add(ERRORS, metrics.errors, protocol, api)
        if metrics.seconds.count:
            samples.add(SECONDS, metrics.seconds, protocol, api)
        await samples.turns.next()
