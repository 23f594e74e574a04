"""What recovery cuts from a segment stays cut: a power cut must not bring old batches back in the place of
later ones, which are acknowledged without a sync."""

import random
import shutil
from pathlib import Path
from typing import Any

from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.files.recovery.set_aside import set_aside
from posthouse.storage.files.segments.partition_log import PartitionLog
from tests.storage.batches import append, make_batch, make_topic
from tests.storage.files.test_power_cut import moved
from tests.storage.forgetful import ForgetfulDisk
from tests.storage.stores import file_storage


class Unlucky(random.Random):
    """Nothing that was not synced is kept."""

    def choice(self, seq: Any) -> Any:
        return min(seq)


async def with_a_tail(place: Path) -> tuple[ForgetfulDisk, str, int]:
    """What a power cut leaves in `place`: a batch that is in the catalog, and one behind it that no frame of
    the journal knows; the segment and where it should end."""
    topic = make_topic(segment_bytes="10000")
    running = place.with_name("running")
    disk = ForgetfulDisk()
    storage = file_storage(running, disk=disk)
    await storage.open()
    await storage.create_topics([topic])
    await storage.commit([append(topic.partition(0), b"kept")])
    await storage.checkpoint()
    [path] = [each for each in disk._files if each.endswith(".log")]
    size = disk.size(path)
    handle = disk.open(path)
    disk.write(handle, [make_batch(b"old")], size)
    disk.sync(handle)
    disk.close(handle)
    disk.cut_power()
    shutil.copytree(running, place)
    await storage.close()
    after = moved(disk.restart(Unlucky()), str(running), str(place))
    path = str(place) + path.removeprefix(str(running))
    assert after.size(path) > size
    return after, path, size


async def test_what_was_never_acknowledged(tmp_path: Path) -> None:
    place = tmp_path / "data"
    disk, path, size = await with_a_tail(place)
    storage = file_storage(place, disk=disk)
    await storage.open()
    assert disk.size(path) == size
    disk.cut_power()
    await storage.close()
    assert disk.restart(Unlucky()).size(path) == size


async def test_what_was_set_aside(tmp_path: Path) -> None:
    place = tmp_path / "data"
    disk, path, size = await with_a_tail(place)
    owner = PartitionLog(PartitionId(new_topic_id(), 0), str(place), TopicConfig())
    copy = set_aside(disk, str(place), owner, path, size)
    after = disk.restart(Unlucky())
    assert after.size(path) == size
    assert after.size(copy) > 0, "the bytes are still somewhere"
