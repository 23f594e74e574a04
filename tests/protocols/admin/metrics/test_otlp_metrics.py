"""Metrics as OpenTelemetry's SDK exports them."""

import gzip
import io
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    HistogramDataPoint,
)
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

from posthouse import otel_exporters
from posthouse.model.errors import InvalidConfig
from posthouse.model.histogram import SECONDS
from posthouse.testing import AsyncBroker
from tests.broker.queues.lazy_rig import until
from tests.broker.queues.rig import Rig


class Collecting:
    """An OTLP collector that keeps the last value of each metric."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.histograms: dict[str, list[HistogramDataPoint]] = {}
        """All points that came, by metric."""
        self.temporality: dict[str, int] = {}
        self.services: set[str] = set()
        collecting = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collecting.take(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *values: object) -> None:
                """Not to the terminal."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def take(self, request: ExportMetricsServiceRequest) -> None:
        for resource in request.resource_metrics:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.services.add(names["service.name"])
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.HasField("histogram"):
                        self.histograms.setdefault(metric.name, []).extend(metric.histogram.data_points)
                        self.temporality[metric.name] = metric.histogram.aggregation_temporality
                        continue
                    points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
                    for point in points:
                        labels = frozenset((each.key, each.value.string_value) for each in point.attributes)
                        value = point.as_int if point.HasField("as_int") else point.as_double
                        self.values[metric.name, labels] = value

    def value(self, name: str, labels: Mapping[str, str]) -> float | None:
        return self.values.get((name, frozenset(labels.items())))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def collecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collecting]:
    collecting = Collecting()
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collecting.address)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    yield collecting
    collecting.close()


async def test_the_same_numbers_are_pushed(collecting: Collecting) -> None:
    async with AsyncBroker() as broker:
        rig = Rig(broker.app.broker)
        await rig.queue("mails")
        await rig.publish(b"1", b"2", key=b"mails")
        labels = {"namespace": "/", "queue": "mails"}
        await until(lambda: collecting.value("posthouse_queue_published_messages_total", labels) == 2)
        assert collecting.value("posthouse_queue_ready_messages", labels) == 2
        assert collecting.services == {"posthouse"}


@pytest.mark.parametrize("preference", ["cumulative", "delta"])
async def test_histograms_are_pushed_with_their_buckets(
    collecting: Collecting, monkeypatch: pytest.MonkeyPatch, preference: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", preference)
    points = collecting.histograms.setdefault("posthouse_event_loop_delay_seconds", [])
    async with AsyncBroker() as broker:
        await until(lambda: sum(point.count for point in points) > 3)
        delay = broker.app._loop_delay.seconds
    is_delta = preference == "delta"
    expected = AGGREGATION_TEMPORALITY_DELTA if is_delta else AGGREGATION_TEMPORALITY_CUMULATIVE
    assert collecting.temporality["posthouse_event_loop_delay_seconds"] == expected
    for point in points:
        assert (tuple(point.explicit_bounds), len(point.bucket_counts)) == (SECONDS, len(SECONDS) + 1)
        assert sum(point.bucket_counts) == point.count
        assert not point.HasField("min")
    counts = [point.count for point in points]
    assert (sum(counts) if is_delta else max(counts)) <= delay.count
    assert is_delta or counts == sorted(counts)
    starts = [point.start_time_unix_nano for point in points]
    assert len(set(starts)) == (len(points) if is_delta else 1)


@pytest.mark.parametrize(
    ("variable", "protocol", "expected"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "there is no metrics exporter 'otlp_proto_grpc'"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json", "is 'http/json'"),
    ],
)
async def test_a_protocol_that_is_not_there_is_refused(
    collecting: Collecting, monkeypatch: pytest.MonkeyPatch, variable: str, protocol: str, expected: str
) -> None:
    monkeypatch.setenv(variable, protocol)
    monkeypatch.setattr(otel_exporters, "entry_points", lambda **wanted: [])  # others may be installed
    with pytest.raises(InvalidConfig, match=expected):
        async with AsyncBroker():
            pass


async def test_the_protocol_of_metrics_may_differ_from_that_of_traces(
    collecting: Collecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf")
    async with AsyncBroker():
        await until(lambda: "posthouse" in collecting.services)


async def test_a_grpc_exporter_is_used_where_one_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    class GrpcExporter(ConsoleMetricExporter):
        def __init__(self) -> None:
            super().__init__(out=io.StringIO())
            made.append(self)

    class Installed:
        """An entry point of a package."""

        name = "otlp_proto_grpc"

        def load(self) -> type[GrpcExporter]:
            return GrpcExporter

    monkeypatch.setattr(otel_exporters, "entry_points", lambda **wanted: [Installed()])
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    async with AsyncBroker():
        assert len(made) == 1


async def test_nothing_is_pushed_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    async with AsyncBroker() as broker:
        assert broker.app._otlp_metrics is None
