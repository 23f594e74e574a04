from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.testing import ThreadBroker, running_broker
from tests.tracing.collected import Collected


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
def traced(collected: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadBroker]:
    """A broker on disk, whose spans are `collected`."""
    monkeypatch.setattr("posthouse.app.tracing_of_environment", collected.tracing)
    with running_broker(data=tmp_path / "data", tracing=True, default_partitions=1) as broker:
        yield broker
