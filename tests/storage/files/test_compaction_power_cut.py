"""Power cuts in the middle of compaction, by seed, on a disk that forgets what was not synced.

The catalog is SQLite's and is taken to be durable.
"""

import random
import shutil
from contextlib import suppress
from pathlib import Path

from posthouse.model.clock import ManualClock
from posthouse.model.errors import PosthouseError
from posthouse.storage.files.engine import FileStorage
from tests.storage.compacted import compacted_topic, put, read_records
from tests.storage.files.test_power_cut import moved
from tests.storage.forgetful import ForgetfulDisk

SEEDS = 40
LIVES = 4


class CuttingDisk(ForgetfulDisk):
    """The power fails after so many syncs, renames and removals."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 10**9

    def _check(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.cut_power()
        super()._check()


async def test_the_latest_of_each_key_survives(memory_path: Path) -> None:
    swapped = 0
    for seed in range(SEEDS):
        swapped += await lives(memory_path / str(seed), random.Random(seed))
    assert swapped > SEEDS, "compaction got somewhere before the power failed"


async def lives(place: Path, chance: random.Random) -> int:
    disk = CuttingDisk()
    topic = compacted_topic(segment_bytes=chance.choice(["100", "300", "1000"]))
    partition = topic.partition(0)
    latest: dict[bytes, tuple[int, bytes]] = {}
    swapped = counter = 0
    for life in range(LIVES):
        storage = FileStorage(
            place / str(life), clock=ManualClock(), disk=disk, journal_bytes=3000, checkpoint_seconds=3600
        )
        await storage.open()
        if not life:
            await storage.create_topics([topic])
        found = await read_records(storage, partition)
        for key, (offset, value) in latest.items():
            assert found[offset].key == key and found[offset].value == value
        for _ in range(chance.randrange(5, 30)):
            counter += 1
            key, value = b"%d" % chance.randrange(4), b"%d" % counter
            [outcome] = await storage.commit([put(partition, (key, value))])
            latest[key] = (outcome.base_offset, value)
        disk.left = chance.randrange(1, 80)
        with suppress(PosthouseError):
            await storage.compact()
        swapped += any(segment.generation for segment in storage._logs[partition].segments)
        disk.cut_power()
        shutil.copytree(place / str(life), place / str(life + 1))
        await storage.close()
        after = moved(disk.restart(chance), str(place / str(life)), str(place / str(life + 1)))
        disk = CuttingDisk()
        disk.__dict__.update({key: each for key, each in vars(after).items() if key != "left"})
    return swapped
