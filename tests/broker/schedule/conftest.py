"""Schedules on both storages."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from tests.broker.schedule.office import Office


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose syncs cost nothing: they are not what is tested."""
    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None, prefix="posthouse-") as made:
        yield Path(made)


@pytest.fixture(params=["file", "memory"])
async def office(request: pytest.FixtureRequest, place: Path, clock: ManualClock) -> AsyncIterator[Office]:
    made = Office(clock, place / "data" if request.param == "file" else None)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def file_office(place: Path, clock: ManualClock) -> AsyncIterator[Office]:
    made = Office(clock, place / "data")
    await made.open()
    yield made
    await made.close()
