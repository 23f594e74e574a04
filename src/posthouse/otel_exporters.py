"""Exporters of OpenTelemetry's SDK, chosen by its own environment variables. Needs the extra `tracing`.

OpenTelemetry itself reads OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and OTEL_EXPORTER_OTLP_…. It leaves the
choice of the exporter and of its protocol to the program.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry.sdk.resources import SERVICE_NAME, Resource

from posthouse.model.errors import InvalidConfig

_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_UNNAMED: Final = "unknown_service"
"""OpenTelemetry's own name for a service without one begins like this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Traces or metrics: in sentences, in names of variables, and as the group of entry points by which
    packages offer exporters."""

    name: str
    variable: str
    entry_points: str


TRACES: Final = Signal(name="trace", variable="TRACES", entry_points="opentelemetry_traces_exporter")
METRICS: Final = Signal(name="metrics", variable="METRICS", entry_points="opentelemetry_metrics_exporter")


def otlp(signal: Signal, environment: Mapping[str, str]) -> str:
    """The name of the exporter for OTLP. Raises InvalidConfig for a protocol that no exporter knows."""
    variables = (f"OTEL_EXPORTER_OTLP_{signal.variable}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    protocol = next((environment[name] for name in variables if environment.get(name)), "http/protobuf")
    if protocol not in _PROTOCOLS:
        raise InvalidConfig(
            f"{variables[1]} is {protocol!r}; the protocols that can be used are {', '.join(_PROTOCOLS)}"
        )
    return _PROTOCOLS[protocol]


def new_exporter(signal: Signal, name: str) -> Any:
    """Raises InvalidConfig for an exporter that is not installed."""
    for found in entry_points(group=signal.entry_points, name=name):
        return found.load()()
    there = sorted({each.name for each in entry_points(group=signal.entry_points)})
    raise InvalidConfig(
        f"there is no {signal.name} exporter {name!r}, which OTEL_{signal.variable}_EXPORTER or its protocol "
        f"asks for: install its package, or choose one of {', '.join(there)}"
    )


def resource() -> Resource:
    """What the broker is called, unless OpenTelemetry's variables say otherwise."""
    found = Resource.create()
    if str(found.attributes.get(SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        found = found.merge(Resource({SERVICE_NAME: "posthouse"}))
    return found
