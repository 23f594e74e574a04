"""A start that fails leaves no exporter behind."""

import socket
import threading

import pytest

from posthouse.app import App
from posthouse.listener_settings import Address
from posthouse.model.errors import InvalidConfig
from tests.served import on_any_port


@pytest.mark.parametrize("metrics", ["none", "otlp"])
async def test_no_thread_is_left(metrics: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", metrics)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(InvalidConfig, match="in use"):
            await App(on_any_port(memory=True, tracing=True, kafka=address)).start()
    left = {each.name for each in set(threading.enumerate()) - before if each.is_alive()}
    assert not {name for name in left if "otel" in name.lower() or "posthouse" in name}
