"""Where spans go is said by OpenTelemetry's own variables; whether there are any, by a setting."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from posthouse import otel_exporters
from posthouse.model.errors import InvalidConfig
from posthouse.testing import running_broker
from posthouse.tracing.exporting import provider_of
from posthouse.tracing.message_spans import MessageSpans
from posthouse.tracing.tracing import Tracing, tracing_of_environment
from tests.tracing.collected import Parent
from tests.tracing.otlp_receiver import Receiver, receiving


def send(kafka: str, *parents: Parent) -> None:
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
    for parent in parents:
        producer.produce("orders", b"", headers=[("traceparent", parent.header.encode())])
        assert producer.flush(60) == 0


def export_to(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")  # so that only the stop exports


def test_a_collector_gets_the_spans_at_the_latest_when_the_broker_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent = Parent()
    with receiving() as receiver:
        export_to(receiver, monkeypatch)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "the-post")
        with running_broker(tracing=True) as broker:
            send(broker.kafka, parent)
        assert receiver.services == {"the-post"}
        spans = {span.name: span for span in receiver.spans}
        assert spans.keys() == {"send orders", "commit orders"}
        assert spans["send orders"].trace_id == parent.trace.to_bytes(16, "big")
        assert spans["send orders"].parent_span_id == parent.span.to_bytes(8, "big")
        assert spans["commit orders"].parent_span_id == spans["send orders"].span_id


def test_the_service_is_called_posthouse_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        export_to(receiver, monkeypatch)
        with running_broker(tracing=True) as broker:
            send(broker.kafka, Parent())
        assert receiver.services == {"posthouse"}


def test_the_sampler_is_opentelemetrys(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        export_to(receiver, monkeypatch)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        with running_broker(tracing=True) as broker:
            send(broker.kafka, Parent())
        assert not receiver.spans


def test_a_collector_that_does_not_answer_holds_up_no_request_and_not_the_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def impatient() -> Tracing:
        provider = provider_of()
        return Tracing(MessageSpans(provider), provider.shutdown, flush_seconds=0.2)

    monkeypatch.setattr("posthouse.app.tracing_of_environment", impatient)
    with receiving() as receiver:
        receiver.release.clear()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        broker = running_broker(tracing=True)
        broker.start()
        send(broker.kafka, *(Parent() for _ in range(20)))
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 8, "the exporter waits for 10 s"
        receiver.release.set()
        for thread in threading.enumerate():
            if thread.name == "posthouse-span-export":
                thread.join(60)
    assert any("could not be exported within 0.2 s" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"OTEL_TRACES_EXPORTER": "pigeon"}, "there is no trace exporter 'pigeon'"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "there is no trace exporter 'otlp_proto_grpc'"),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"}, "is 'http/json'"),
    ],
)
def test_an_exporter_that_is_not_there_is_refused(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel_exporters, "entry_points", lambda **wanted: [])  # others may be installed
    with pytest.raises(InvalidConfig, match=message):
        provider_of(variables)


def test_no_exporter_is_one_of_the_choices() -> None:
    provider_of({"OTEL_TRACES_EXPORTER": "none"}).shutdown()


def test_without_the_extra_the_broker_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("posthouse.tracing.exporting", "posthouse.tracing.message_spans"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(InvalidConfig, match=r"pip install 'posthouse\[tracing\]'"):
        tracing_of_environment()


_OFF = """
import asyncio, sys
from posthouse.testing import AsyncBroker

async def run():
    async with AsyncBroker(tracing={tracing}):
        pass
    print(any(name.startswith("opentelemetry") for name in sys.modules))

asyncio.run(run())
"""


@pytest.mark.parametrize("tracing", [False, True])
def test_opentelemetry_is_imported_only_where_tracing_is_on(tracing: bool, tmp_path: Path) -> None:
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    command = [sys.executable, "-c", _OFF.format(tracing=tracing)]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.strip() == str(tracing)
