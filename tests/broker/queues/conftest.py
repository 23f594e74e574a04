"""Small segments, and a clock that stands still."""

import pytest

from posthouse.model.clock import ManualClock
from tests.broker.queues.rig import tiny_segments


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_segments(monkeypatch)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
