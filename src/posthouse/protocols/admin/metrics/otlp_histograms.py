"""Histograms as OpenTelemetry's SDK exports them. It has no instrument for buckets that are counted already.

OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE decides, as for the instruments of the SDK, whether a point
has everything since the start of the broker (`cumulative`), or what came since the last export (`delta`,
`lowmemory`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import time_ns
from typing import Any, Final

from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricsData,
    PeriodicExportingMetricReader,
)

from posthouse.model.histogram import Histogram
from posthouse.protocols.admin.metrics.family import Family, MetricKind
from posthouse.protocols.admin.metrics.samples import FamilySamples, Labels

_PREFERENCE: Final = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_OF_CHANGES: Final = frozenset({"delta", "lowmemory"})
_UNKNOWN: Final[Any] = None
"""The least and greatest value: optional in OTLP, though not in the SDK's types."""


class HistogramPoints:
    """One for each that exports: it remembers what was exported last."""

    def __init__(self, environment: Mapping[str, str], now_ns: int) -> None:
        self._is_of_changes = environment.get(_PREFERENCE, "").lower() in _OF_CHANGES
        self._since_ns = now_ns
        self._last: dict[tuple[Family, Labels], tuple[list[int], float]] = {}

    def metrics(self, collected: Mapping[Family, FamilySamples], now_ns: int) -> list[Metric]:
        found = [
            self._metric(family, samples, now_ns)
            for family, samples in collected.items()
            if family.kind is MetricKind.HISTOGRAM
        ]
        if self._is_of_changes:
            self._since_ns = now_ns
        return found

    def _metric(self, family: Family, samples: FamilySamples, now_ns: int) -> Metric:
        points = [
            self._point(family, labels, value, now_ns)
            for labels, value in samples
            if isinstance(value, Histogram)
        ]
        temporality = AggregationTemporality.CUMULATIVE
        if self._is_of_changes:
            temporality = AggregationTemporality.DELTA
        data = export.Histogram(data_points=points, aggregation_temporality=temporality)
        return Metric(name=family.name, description=family.meaning, unit="", data=data)

    def _point(self, family: Family, labels: Labels, value: Histogram, now_ns: int) -> HistogramDataPoint:
        buckets, total = list(value.buckets), value.sum  # the event loop goes on counting
        if self._is_of_changes:
            before, total_before = self._last.get((family, labels), ([0] * len(buckets), 0.0))
            self._last[family, labels] = buckets, total
            buckets = [now - then for now, then in zip(buckets, before, strict=True)]
            total -= total_before
        return HistogramDataPoint(
            attributes=dict(zip(family.labels, labels, strict=True)),
            start_time_unix_nano=self._since_ns,
            time_unix_nano=now_ns,
            count=sum(buckets),
            sum=total,
            bucket_counts=buckets,
            explicit_bounds=value.bounds,
            min=_UNKNOWN,
            max=_UNKNOWN,
        )


class HistogramReader(PeriodicExportingMetricReader):
    """Exports histograms with all other metrics of the SDK, on the thread of its own."""

    def __init__(self, exporter: Any, points: HistogramPoints) -> None:
        self._points = points
        self.collected: Mapping[Family, FamilySamples] = {}
        """Replaced as a whole by the event loop."""
        super().__init__(exporter)

    def _receive_metrics(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **options: Any
    ) -> None:
        histograms = self._points.metrics(self.collected, time_ns())
        super()._receive_metrics(self._with(metrics_data, histograms), timeout_millis, **options)

    def _with(self, metrics_data: MetricsData, more: Sequence[Metric]) -> MetricsData:
        """In the one scope that there is: exporters forget all but one of the same resource."""
        if not metrics_data.resource_metrics:
            return metrics_data  # nothing is collected yet
        [of_resource] = metrics_data.resource_metrics
        [of_scope] = of_resource.scope_metrics
        scope = replace(of_scope, metrics=[*of_scope.metrics, *more])
        return MetricsData(resource_metrics=[replace(of_resource, scope_metrics=[scope])])
