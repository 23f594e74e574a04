"""A tracer provider as OpenTelemetry's own environment variables describe it.

OpenTelemetry itself reads OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER, OTEL_BSP_… and
OTEL_EXPORTER_OTLP_…. It leaves the choice of exporters (OTEL_TRACES_EXPORTER) to the program.
"""

import os
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from posthouse.model.errors import InvalidConfig

_EXPORTERS: Final = "opentelemetry_traces_exporter"
"""The group of entry points by which packages offer exporters."""
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_UNNAMED: Final = "unknown_service"
"""OpenTelemetry's own name for a service without one begins like this."""


def provider_of(environment: Mapping[str, str] = os.environ) -> TracerProvider:
    """Raises InvalidConfig for an exporter that is not there."""
    exporters = [_exporter(name) for name in _exporter_names(environment)]
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        resource = resource.merge(Resource({SERVICE_NAME: "posthouse"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporter_names(environment: Mapping[str, str]) -> list[str]:
    listed = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    names = [name.strip() for name in listed.split(",") if name.strip()]
    return [_otlp(environment) if name == "otlp" else name for name in names if name != "none"]


def _otlp(environment: Mapping[str, str]) -> str:
    variables = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environment[name] for name in variables if environment.get(name)), "http/protobuf")
    if protocol not in _PROTOCOLS:
        raise InvalidConfig(
            f"{variables[1]} is {protocol!r}; the protocols that can be used are {', '.join(_PROTOCOLS)}"
        )
    return _PROTOCOLS[protocol]


def _exporter(name: str) -> SpanExporter:
    for found in entry_points(group=_EXPORTERS, name=name):
        exporter: SpanExporter = found.load()()
        return exporter
    there = sorted({each.name for each in entry_points(group=_EXPORTERS)})
    raise InvalidConfig(
        f"there is no trace exporter {name!r}, which OTEL_TRACES_EXPORTER or its protocol asks for: install "
        f"its package, or choose one of {', '.join(there)}"
    )
