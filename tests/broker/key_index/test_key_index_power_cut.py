"""Power cuts on a simulated disk, by seed, while the index is written: searches find what the log has."""

import asyncio
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.broker.key_index.files import DiskFiles
from posthouse.model.clock import ManualClock
from posthouse.model.errors import Unavailable
from posthouse.model.topic_config import Durability
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers
from posthouse.records.record import iter_records
from tests.broker.key_index.rig import IndexRig, indexed_topic, on_disk, write
from tests.directories import IN_MEMORY
from tests.storage.files.test_power_cut import moved
from tests.storage.forgetful import ForgetfulDisk
from tests.storage.stores import file_storage

SEEDS = 16
KEYS = [b"a", b"b", b"c"]


class Lives:
    """Of one log with its index, each ended by a power cut at a random moment."""

    def __init__(self, place: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.place = place
        self.disk = ForgetfulDisk()
        self.clock = ManualClock()
        self.topic = indexed_topic(
            partitions=2, durability=self.random.choice(["os", "fsync"]), segment_bytes="2000"
        )
        self.lives = 0
        self.files = 0

    async def live(self) -> None:
        directory = self.place / str(self.lives)
        storage = file_storage(directory, disk=self.disk, clock=self.clock, journal_bytes=1000)
        await storage.open()
        if not self.lives:
            await storage.create_topics([self.topic])
        rig = await on_disk(storage, str(directory), self.clock, self.disk)
        self.files += len(rig.files.names(self.topic.id))
        await self.look(rig, self.topic)
        task = asyncio.create_task(self.work(rig))
        for _ in range(self.random.randrange(200)):
            await asyncio.sleep(0 if self.random.random() < 0.9 else 0.0002)
        self.disk.cut_power()
        shutil.copytree(directory, self.place / str(self.lives + 1))
        await asyncio.wait_for(task, 30)
        await rig.stop()
        await storage.close()
        self.lives += 1
        self.disk = moved(self.disk.restart(self.random), str(directory), str(self.place / str(self.lives)))

    async def work(self, rig: IndexRig) -> None:
        try:
            while not self.disk.is_off:
                partition = self.topic.partition(self.random.randrange(2))
                await write(rig, partition, *self.random.choices(KEYS, k=self.random.randrange(1, 9)))
                if self.random.random() < 0.7:
                    await rig.index._turn(rests=False)
        except Unavailable:
            return

    async def look(self, rig: IndexRig, topic: Topic) -> None:
        for index_first in (False, True):
            if index_first:
                await rig.index.catch_up()
            for key in KEYS:
                found = await rig.find(topic, key)
                assert found.is_complete
                for partition in range(2):
                    hits = [record.offset for each, record in found.records if each == partition]
                    assert hits == sorted(set(hits), reverse=True)
                    # A read that begins in front of damage may skip more than one that begins behind it.
                    assert set(await self.truth(rig, topic, partition, key)) <= set(hits)
                    for _, record in found.records:
                        assert record.key == key

    async def truth(self, rig: IndexRig, topic: Topic, partition: int, key: bytes) -> list[int]:
        bounds = rig.storage.bounds(topic.partition(partition))
        found: list[int] = []
        offset = bounds.start
        while offset < bounds.end:
            part = await rig.storage.read(topic.partition(partition), offset, 100_000)
            for at, header in iter_headers(part.data):
                batch = memoryview(part.data)[at : at + header.length]
                found += [each.offset for each in iter_records(batch) if each.key == key]
                offset = header.next_offset
        return found[::-1]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose syncs cost nothing: they are not what is tested."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as made:
        yield Path(made)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_what_power_cuts_leave(place: Path, seed: int) -> None:
    lives = Lives(place, seed)
    for _ in range(8):
        await lives.live()
    assert (lives.files > 0) is (lives.topic.config.durability is Durability.FSYNC)


def test_files_on_a_disk_that_lies_are_whole_or_not_there(place: Path) -> None:
    """Names and contents that are not synced may be lost one by one."""
    for seed in range(200):
        drawn = random.Random(seed)
        disk = ForgetfulDisk()
        files = DiskFiles(disk, "/data")
        topic = indexed_topic().id
        files.write(topic, "0-1.keys", [b"abc", b"def"])
        files.write(topic, "0-2.keys", [b"ghi"])
        after = DiskFiles(disk.restart(drawn), "/data")
        assert after.read(topic, "0-1.keys", 100, 0) == b"abcdef"
        assert after.read(topic, "0-2.keys", 100, 0) == b"ghi"
