"""Schedules on both storages."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from tests.broker.schedule.office import Office
from tests.directories import IN_MEMORY


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose syncs cost nothing: they are not what is tested."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as made:
        yield Path(made)


TINY_WINDOW = 4
"""So small that everything in a longer period is moved to shorter ones, and hardly any log fits."""


@pytest.fixture(params=["file", "memory", "memory-tiny"])
async def office(request: pytest.FixtureRequest, place: Path, clock: ManualClock) -> AsyncIterator[Office]:
    window = TINY_WINDOW if request.param == "memory-tiny" else 100
    made = Office(clock, place / "data" if request.param == "file" else None, window=window)
    await made.open()
    yield made
    await made.close()


@pytest.fixture(params=[100, TINY_WINDOW], ids=["window", "tiny-window"])
async def file_office(
    request: pytest.FixtureRequest, place: Path, clock: ManualClock
) -> AsyncIterator[Office]:
    made = Office(clock, place / "data", window=request.param)
    await made.open()
    yield made
    await made.close()
