"""Connections and segments share what the system allows."""

import pytest

from posthouse.app import App
from posthouse.descriptors import RESERVE, share_out
from posthouse.model.errors import InvalidConfig
from tests.served import on_any_port


@pytest.mark.parametrize(
    ("limit", "max_connections", "open_files", "connections", "files"),
    [
        (2**20, 10_000, 0, 10_000, 32_768),
        (20_000, 10_000, 0, 10_000, 9936),
        (1024, 10_000, 0, 720, 240),
        (1024, 100, 0, 100, 480),
        (1024, 10_000, 512, 448, 512),
        (128, 10_000, 0, 48, 16),
        (128, 8, 0, 8, 32),
    ],
)
def test_shares(limit: int, max_connections: int, open_files: int, connections: int, files: int) -> None:
    shared = share_out(limit, max_connections=max_connections, open_files=open_files)
    assert (shared.connections, shared.files) == (connections, files)
    assert shared.connections + shared.files + RESERVE <= limit


@pytest.mark.parametrize(("limit", "open_files"), [(64, 0), (90, 0), (1024, 950), (1024, 2000)])
def test_too_few(limit: int, open_files: int) -> None:
    with pytest.raises(InvalidConfig, match=f"allows this process {limit} open files"):
        share_out(limit, max_connections=10_000, open_files=open_files)


def test_a_warning_names_both_numbers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("posthouse.app.allowed_descriptors", lambda: 1024)
    app = App(on_any_port(memory=True))
    assert app.settings.max_connections == 720
    assert "max_connections is 10000" in caplog.text
    assert "1024 open files: 720 clients" in caplog.text
