"""A store with one compacted partition: forty records of seven keys, of which the last seven count."""

from pathlib import Path

from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.verify import Verification
from tests.storage.compacted import compacted_topic, put, read_records
from tests.storage.faults import FaultyDisk
from tests.storage.stores import file_storage

TOPIC = compacted_topic(segment_bytes="300")
PARTITION = TOPIC.partition(0)

Contents = dict[int, bytes | None]


async def filled(directory: Path, disk: FaultyDisk | None = None, count: int = 40) -> FileStorage:
    storage = file_storage(directory, disk=disk)
    await storage.open()
    await storage.create_topics([TOPIC])
    for number in range(count):
        await storage.commit([put(PARTITION, (b"%d" % (number % 7), b"%d" % number))])
    return storage


async def contents(storage: FileStorage) -> Contents:
    found = await read_records(storage, PARTITION)
    return {offset: record.value for offset, record in found.items()}


def latest(found: Contents) -> Contents:
    return {offset: value for offset, value in found.items() if offset >= 33}


def segment_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("topics/*/*"))


async def check_opens(directory: Path, *, files: bool = True) -> Contents:
    """It serves the latest of each key, nothing is damaged, and no file is there in vain."""
    storage = file_storage(directory)
    await storage.open()
    try:
        found = await contents(storage)
        assert latest(found) == {offset: b"%d" % offset for offset in range(33, 40)}
        assert storage.bounds(PARTITION).end == 40
        log = storage._logs[PARTITION]
        named = {Path(each.path).name for each in log.segments}
        if files:
            assert {name for name in segment_files(directory) if ".log" in name} == named
        assert not list(Verification(directory).findings())
        await storage.compact()
        await check_compacted(storage)
    finally:
        await storage.close()
    return found


async def check_compacted(storage: FileStorage) -> None:
    """Of what is in closed segments the latest of each of seven keys is left, of the rest all."""
    active = storage._logs[PARTITION].segments[-1].base_offset
    assert await contents(storage) == {n: b"%d" % n for n in range(40) if n + 7 >= active}
