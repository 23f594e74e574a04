"""Metrics pushed by OTLP, for those who do not scrape. Needs the extra `tracing`.

OpenTelemetry's SDK exports on a thread of its own, which must not look at the broker. So the event loop
collects from time to time, and the thread gets what was collected last. OpenTelemetry reads its own
environment variables: OTEL_METRIC_EXPORT_INTERVAL, and those that `otel_exporters` names. Histograms are in
`otlp_histograms`.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from time import time_ns
from typing import Final

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider

from posthouse.model.histogram import Histogram
from posthouse.otel_exporters import METRICS, new_exporter, otlp, resource
from posthouse.protocols.admin.metrics.collector import FAMILIES, MetricsCollector
from posthouse.protocols.admin.metrics.family import Family, MetricKind
from posthouse.protocols.admin.metrics.otlp_histograms import HistogramPoints, HistogramReader
from posthouse.protocols.admin.metrics.samples import FamilySamples

log = logging.getLogger(__name__)

_INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
_DEFAULT_INTERVAL_MS: Final = 60_000
_COLLECTIONS_PER_EXPORT: Final = 4
"""What is exported is at most a quarter of the interval old."""
_SHUTDOWN_MS: Final = 2000
"""How long a collector that does not answer may delay the end of the broker."""

_Observe = Callable[[CallbackOptions], Iterable[Observation]]


class OtlpMetrics:
    def __init__(self, collector: MetricsCollector, environment: Mapping[str, str] = os.environ) -> None:
        """Raises InvalidConfig if the environment asks for a protocol that is not installed."""
        self._collector = collector
        self._seconds = _interval_ms(environment) / 1000 / _COLLECTIONS_PER_EXPORT
        self._collected: dict[Family, FamilySamples] = {}
        """Replaced as a whole: the exporter's thread reads it."""
        self._task: asyncio.Task[None] | None = None
        exporter = new_exporter(METRICS, otlp(METRICS, environment))
        self._reader = HistogramReader(exporter, HistogramPoints(environment, time_ns()))
        self._provider = MeterProvider([self._reader], resource(), shutdown_on_exit=False)
        self._declare()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="otlp metrics")

    def stop(self) -> None:
        """Collect no more."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Export what was collected last, and end."""
        await asyncio.to_thread(self._provider.shutdown, _SHUTDOWN_MS)

    async def collect(self) -> None:
        collected: dict[Family, FamilySamples] = {}
        async for samples in self._collector.collect():
            collected.update(samples)
        self._collected = self._reader.collected = collected

    async def _run(self) -> None:
        while True:
            try:
                await self.collect()
            except Exception:
                log.exception("metrics for OTLP could not be collected")
            await asyncio.sleep(self._seconds)

    def _declare(self) -> None:
        meter = self._provider.get_meter("posthouse")
        for family in FAMILIES:
            if family.kind is MetricKind.GAUGE:
                meter.create_observable_gauge(family.name, [self._values(family)], description=family.meaning)
            elif family.kind is MetricKind.COUNTER:
                meter.create_observable_counter(
                    family.name, [self._values(family)], description=family.meaning
                )

    def _values(self, family: Family) -> _Observe:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            for labels, value in self._collected.get(family, ()):
                assert not isinstance(value, Histogram)
                yield Observation(value, dict(zip(family.labels, labels, strict=True)))

        return observe


def _interval_ms(environment: Mapping[str, str]) -> float:
    """As OpenTelemetry reads it: what is no number is ignored."""
    try:
        return max(float(environment.get(_INTERVAL) or _DEFAULT_INTERVAL_MS), 1.0)
    except ValueError:
        return _DEFAULT_INTERVAL_MS
