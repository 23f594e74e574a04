"""A tracer provider as OpenTelemetry's own environment variables describe it.

OpenTelemetry itself reads OTEL_TRACES_SAMPLER and OTEL_BSP_…; see `otel_exporters` for the others.
"""

import os
from collections.abc import Mapping

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from posthouse.otel_exporters import TRACES, new_exporter, otlp, resource


def provider_of(environment: Mapping[str, str] = os.environ) -> TracerProvider:
    """Raises InvalidConfig for an exporter that is not there."""
    exporters = [new_exporter(TRACES, name) for name in _exporter_names(environment)]
    provider = TracerProvider(resource=resource(), shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporter_names(environment: Mapping[str, str]) -> list[str]:
    listed = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    names = [name.strip() for name in listed.split(",") if name.strip()]
    return [otlp(TRACES, environment) if name == "otlp" else name for name in names if name != "none"]
