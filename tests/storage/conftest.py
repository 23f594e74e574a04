"""The storages under test, with limits so small that every edge is met."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.contract import Storage
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.memory.engine import MemoryStorage
from tests.directories import IN_MEMORY
from tests.storage.shared.opened import shared_storage


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A directory whose syncs cost nothing, where they are not what is tested."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as place:
        yield Path(place)


@pytest.fixture(params=["file", "file-tiny", "memory", "shared", "shared-tiny"])
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Storage]:
    """Every implementation, open and empty."""
    made: Storage
    if request.param == "memory":
        made = MemoryStorage(clock)
    elif request.param == "file":
        made = FileStorage(tmp_path / "data", clock=clock, journal_bytes=64 * 1024, open_files=16)
    elif request.param == "file-tiny":
        made = FileStorage(tmp_path / "data", clock=clock, journal_bytes=1024, open_files=2)
    else:
        async with shared_storage(
            request.getfixturevalue("postgres"), clock, is_tiny=request.param == "shared-tiny"
        ) as shared:
            yield shared
        return
    await made.open()
    yield made
    await made.close()
