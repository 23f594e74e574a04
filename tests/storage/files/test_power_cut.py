"""Power cuts on a simulated disk, by seed. The catalog is SQLite's and is taken to be durable."""

import asyncio
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.topics import Topic
from posthouse.storage.files.engine import FileStorage
from tests.alarms import alarms
from tests.directories import IN_MEMORY
from tests.storage.batches import append, make_topic, read_all
from tests.storage.forgetful import ForgetfulDisk

ROUNDS = 200
SHORT = 80
"""Of those, in every run of the tests."""
PER_TEST = 20
RECOVERY = (
    "posthouse.storage.files.recovery.tails",
    "posthouse.storage.files.recovery.recovery",
    "posthouse.storage.files.journal.journal",
)
"""The broker whose power is cut says that the disk fails; the next one has nothing to say."""


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """The catalog's syncs are not what is tested: on a file system in memory they cost nothing."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as place:
        yield Path(place)


class Round:
    """Lives of one store, each ended by a power cut at a random moment."""

    def __init__(self, place: Path, seed: int, durability: str) -> None:
        self.random = random.Random(seed)
        self.durability = durability
        self.place = place / str(seed)
        self.life = 0
        self.disk = ForgetfulDisk()
        self.topic = make_topic(
            partitions=3, segment_bytes=self.random.choice(["100", "400", "5000"]), durability=durability
        )
        self.acked: dict[tuple[int, int], bytes] = {}
        self.tried: dict[tuple[int, int], set[bytes]] = {}
        self.together: list[tuple[list[int], list[bytes]]] = []
        self.counter = 0

    async def lives(self, count: int) -> int:
        """How many acknowledged records were lost."""
        lost = 0
        for life in range(count):
            storage = FileStorage(
                self.place / str(self.life),
                clock=ManualClock(),
                disk=self.disk,
                journal_bytes=self.random.choice([600, 3000]),
                open_files=3,
                checkpoint_seconds=3600,
            )
            await storage.open()
            if not life:
                await storage.create_topics([self.topic])
            lost += await self.check(storage, self.topic)
            await self.work(storage)
            await self.cut(storage)
        return lost

    async def work(self, storage: FileStorage) -> None:
        commits = self.random.randrange(2, 25)
        until = self.random.randrange(1, commits + 1)
        tasks = []
        for number in range(commits):
            tasks.append(asyncio.create_task(self.commit(storage)))
            if self.random.random() < 0.5:
                await tasks[-1]
            if self.random.random() < 0.1:
                tasks.append(asyncio.create_task(storage.checkpoint()))
            if number == until:
                break
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)
        self.disk.cut_power()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def commit(self, storage: FileStorage) -> None:
        indexes = self.random.sample(range(3), self.random.randrange(1, 4))
        values = []
        for _ in indexes:
            self.counter += 1
            values.append(b"%d " % self.counter + b"v" * self.random.choice([0, 30, 700]))
        self.together.append((indexes, values))
        pairs = list(zip(indexes, values, strict=True))
        outcomes = await storage.commit([append(self.topic.partition(i), value) for i, value in pairs])
        for (index, value), outcome in zip(pairs, outcomes, strict=True):
            self.acked[index, outcome.base_offset] = value

    async def cut(self, storage: FileStorage) -> None:
        """The process ends without another word; the next one finds what the disk kept."""
        self.life += 1
        shutil.copytree(self.place / str(self.life - 1), self.place / str(self.life))
        before = self.disk
        await storage.close()
        self.disk = before.restart(self.random)
        self.disk = moved(self.disk, str(self.place / str(self.life - 1)), str(self.place / str(self.life)))

    async def check(self, storage: FileStorage, topic: Topic) -> int:
        found: dict[tuple[int, int], bytes | None] = {}
        for index in range(3):
            served = await read_all(storage, topic.partition(index))
            found |= {(index, offset): value for offset, value in served.items()}
        lost = {place: value for place, value in self.acked.items() if found.get(place) != value}
        present = set(found.values())
        for _, values in self.together:
            there = [value in present for value in values]
            assert all(there) or not any(there) or self.durability == "os", (
                "a commit is there whole or not at all"
            )
        # What the disk kept without having promised it counts from now on: somebody may have read it.
        self.acked = {place: value for place, value in found.items() if value is not None}
        return len(lost)


def moved(disk: ForgetfulDisk, old: str, new: str) -> ForgetfulDisk:
    """The same disk with its files under another directory, where the catalog's copy is."""

    def rebase(path: str) -> str:
        return new + path.removeprefix(old) if path.startswith(old) else path

    disk._files = {rebase(path): file for path, file in disk._files.items()}
    disk._durable_names = {rebase(path): file for path, file in disk._durable_names.items()}
    disk._directories = {rebase(path) for path in disk._directories}
    disk._durable_directories = {rebase(path) for path in disk._durable_directories}
    return disk


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.long] * (first >= SHORT))
        for first in range(0, ROUNDS, PER_TEST)
    ],
)
async def test_what_was_acknowledged_survives_power_cuts(
    memory_path: Path, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(first, first + PER_TEST):
        assert await Round(memory_path, seed, "fsync").lives(3) == 0, f"seed {seed}"
    found = [each for each in alarms(caplog) if each.name in RECOVERY]
    assert not found, "a power cut is no damage"


async def test_the_simulation_does_lose_what_was_not_synced(
    memory_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The negative control: a checker that cannot fail proves nothing."""
    losses = [await Round(memory_path, seed, "os").lives(3) for seed in range(10)]
    assert any(losses)
    assert "acknowledged without a sync (durability=os) are missing" in caplog.text
    assert "the journal is damaged" not in caplog.text, "nobody asked for a sync of these frames"
