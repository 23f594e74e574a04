"""Names of directories are as durable as what is promised of the files in them."""

from pathlib import Path

from posthouse.model.clock import ManualClock
from posthouse.model.errors import Unavailable
from posthouse.storage.files.engine import FileStorage
from tests.simulation.data_directory import DataDirectory
from tests.simulation.disk import Disk
from tests.simulation.world import World
from tests.storage.batches import append, make_topic, read_all


class Machine:
    """A broker's storage on a disk that forgets names, too."""

    def __init__(self, seed: int) -> None:
        self.disk = Disk(World(seed))
        self._databases: dict[str, bytes] = {}

    def storage(self) -> FileStorage:
        data_directory = DataDirectory(self.disk, self._databases, {})
        return FileStorage(
            DataDirectory.directory,
            clock=ManualClock(),
            disk=self.disk,
            data_directory=data_directory,
            journal_bytes=3000,
        )

    def crash(self, *, power_fails: bool) -> None:
        self.disk = self.disk.inherited(power_failed=power_fails)


async def test_the_first_record_of_a_new_data_directory_survives_a_power_cut() -> None:
    topic = make_topic()
    [partition] = topic.partition_ids()
    for seed in range(20):
        machine = Machine(seed)
        storage = machine.storage()
        await storage.open()
        await storage.create_topics([topic])
        await storage.commit([append(partition, b"first")])
        machine.crash(power_fails=True)
        after = machine.storage()
        await after.open()
        assert await read_all(after, partition) == {0: b"first"}
        await after.close()


async def test_directories_that_a_killed_process_made_survive_a_power_cut() -> None:
    """They are there when the next one starts, but nobody has synced the directory that they are in."""
    topic = make_topic()
    [partition] = topic.partition_ids()
    for seed in range(20):
        machine = Machine(seed)
        storage = machine.storage()
        await storage.open()
        await storage.create_topics([topic])
        await storage.commit([append(partition, b"first")])
        machine.crash(power_fails=False)
        again = machine.storage()
        await again.open()  # which makes a checkpoint, so that the journal is not needed any more
        machine.crash(power_fails=True)
        after = machine.storage()
        await after.open()
        assert await read_all(after, partition) == {0: b"first"}
        await after.close()


async def test_a_start_that_failed_leaves_nothing_to_chance() -> None:
    """Whatever it made is there for the next one, which must not think that it is durable."""
    topic = make_topic()
    [partition] = topic.partition_ids()
    for seed in range(40):
        machine = Machine(seed)
        machine.disk.syncs_to_fail = 1 + seed % 4
        for _ in range(4):
            storage = machine.storage()
            try:
                await storage.open()
            except (OSError, Unavailable):
                machine.crash(power_fails=False)
            else:
                break
        await storage.create_topics([topic])
        await storage.commit([append(partition, b"first")])
        machine.crash(power_fails=True)
        after = machine.storage()
        await after.open()
        assert await read_all(after, partition) == {0: b"first"}, f"seed {seed}"
        await after.close()


async def test_a_data_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "deep" / "down", clock=ManualClock())
    await storage.open()
    assert (tmp_path / "deep" / "down" / "journal").is_dir()
    await storage.close()
