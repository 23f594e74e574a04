"""Segment files that were swapped: never served as the segments whose names they have, never lost."""

import errno
import os
import shutil
from itertools import product
from pathlib import Path

import pytest

from posthouse.model.errors import DataDamaged, StorageFenced, Unavailable
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.verify import Finding, Verification
from posthouse.storage.operations import Trim
from tests.storage.batches import append, make_topic, read_all, values_in
from tests.storage.compacted import compacted_topic, put, read_records
from tests.storage.faults import FaultyDisk
from tests.storage.stores import crash_copy, file_storage, opened

ORDERS = make_topic("orders", 2, id=TopicId(b"o" * 16))
PAYMENTS = make_topic("payments", id=TopicId(b"p" * 16))
A, B, C = ORDERS.partition(0), ORDERS.partition(1), PAYMENTS.partition(0)
ALL = (A, B, C)
COUNT = 14
"""Batches of each partition, of equal sizes: the segments of all begin with the same offsets."""


def value(partition: PartitionId, offset: int) -> bytes:
    return b"%s%d-%02d" % (partition.topic[:1], partition.index, offset)


async def fill(storage: FileStorage, topics: list[Topic], first: int = 0, count: int = COUNT) -> None:
    for offset in range(first, first + count):
        for topic in topics:
            for partition in topic.partition_ids():
                await storage.commit([append(partition, value(partition, offset))])


async def build(directory: Path) -> Path:
    async with opened(directory) as storage:
        await storage.create_topics([ORDERS, PAYMENTS])
        await fill(storage, [ORDERS, PAYMENTS])
    return directory


def file(directory: Path, partition: PartitionId, number: int, suffix: str = ".log") -> Path:
    """One of a partition's segments, by its number."""
    found = sorted((directory / "topics" / partition.topic.hex()).glob(f"{partition.index}-*.log"))
    return found[number].with_suffix(suffix)


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


async def genuine(storage: FileStorage, partition: PartitionId) -> set[int]:
    """The offsets that can be read, from each offset on; whatever is served must be this partition's."""
    served: set[int] = set()
    bounds = storage.bounds(partition)
    for offset in range(bounds.start, bounds.end):
        try:
            found = values_in((await storage.read(partition, offset, 1)).data)
        except DataDamaged:
            continue
        assert found == {each: value(partition, each) for each in found}
        served |= set(found)
    return served


def findings(directory: Path) -> list[Finding]:
    return [each for each in Verification(directory).findings() if each.is_damage]


@pytest.mark.parametrize(("other", "number"), list(product([B, C], [0, 1, -1])))
@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index")])
async def test_swapped_segments_are_not_served(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    other: PartitionId,
    number: int,
    suffixes: tuple[str, ...],
) -> None:
    data = await build(tmp_path / "data")
    one, two = file(data, A, number), file(data, other, number)
    before = one.read_bytes(), two.read_bytes()
    assert one.name.split("-")[1] == two.name.split("-")[1] and one.stat().st_size == two.stat().st_size
    for suffix in suffixes:
        if one.with_suffix(suffix).exists():
            swap(one.with_suffix(suffix), two.with_suffix(suffix))
    found = {each.path: each.problem for each in findings(data) if each.path.endswith(".log")}
    assert set(found) == {str(one), str(two)}
    assert f"{two.parent.name}/{two.name}" in found[str(one)]
    async with opened(data) as storage:
        for partition in (A, other):
            offsets = await genuine(storage, partition)
            assert offsets < set(range(COUNT)) and offsets
            with pytest.raises(DataDamaged, match="move the files back"):
                missing = min(set(range(COUNT)) - offsets)
                await storage.read(partition, missing, 1000)
        assert str(one) in caplog.text and f"{two.parent.name}/{two.name}" in caplog.text
        await fill(storage, [ORDERS, PAYMENTS], COUNT, 3)  # other segments take what comes
        assert await genuine(storage, A) >= set(range(COUNT, COUNT + 3))
    swap(one, two)
    assert (one.read_bytes(), two.read_bytes()) == before, "nothing was written to them or cut off"
    async with opened(data) as storage:
        for partition in ALL:
            assert len(await genuine(storage, partition)) == COUNT + 3


async def test_a_swapped_index_is_built_again(tmp_path: Path) -> None:
    data = await build(tmp_path / "data")
    swap(file(data, A, 0, ".index"), file(data, B, 0, ".index"))
    assert {each.path for each in findings(data)} == {str(file(data, p, 0, ".index")) for p in (A, B)}
    async with opened(data) as storage:
        for partition in ALL:
            assert await genuine(storage, partition) == set(range(COUNT))
    assert not findings(data)


@pytest.mark.parametrize("durability", ["fsync", "os"])
async def test_swapped_segments_that_only_the_journal_knows(tmp_path: Path, durability: str) -> None:
    topic = make_topic("orders", 2, id=ORDERS.id, durability=durability)
    async with opened(tmp_path / "data") as storage:
        await storage.create_topics([topic])
        await fill(storage, [topic], count=3)
        copy = await crash_copy(storage, tmp_path / "copy")
    one, two = file(copy, A, 0), file(copy, B, 0)
    contents = {one.read_bytes(), two.read_bytes()}
    swap(one, two)
    assert {str(one), str(two)} <= {each.path for each in findings(copy)}
    async with opened(copy) as storage:
        for partition in (A, B):
            served = await genuine(storage, partition)
            assert served == (set(range(3)) if durability == "fsync" else set())
    assert {path.read_bytes() for path in copy.glob("topics/*/*.misplaced")} == contents


async def test_swapped_segments_of_a_lost_catalog_are_set_aside(tmp_path: Path) -> None:
    data = await build(tmp_path / "data")
    swap(file(data, A, 1), file(data, B, 1))
    (data / "catalog.sqlite").write_bytes(b"no database at all " * 100)
    async with opened(data) as storage:
        for partition in (A, B):
            assert 0 < len(await genuine(storage, partition)) < COUNT
            assert storage.bounds(partition).end == COUNT


async def test_a_file_of_an_older_version_does_not_pass_for_one_with_a_header(tmp_path: Path) -> None:
    data = await build(tmp_path / "data")
    victim = file(data, A, 0)
    victim.write_bytes(victim.read_bytes()[48:])
    assert [each.path for each in findings(data) if each.path.endswith(".log")] == [str(victim)]
    async with opened(data) as storage:
        assert 0 < len(await genuine(storage, A)) < COUNT


async def test_a_damaged_header_costs_nothing(tmp_path: Path) -> None:
    data = await build(tmp_path / "data")
    for partition, position in ((A, 2), (B, 20)):
        path = file(data, partition, 0)
        content = bytearray(path.read_bytes())
        content[position] ^= 0x10
        path.write_bytes(content)
    assert [each.problem for each in findings(data)] == ["its header is damaged"] * 2
    async with opened(data) as storage:
        for partition in ALL:
            assert await genuine(storage, partition) == set(range(COUNT))


async def test_files_of_other_segments_are_not_removed(tmp_path: Path) -> None:
    data = await build(tmp_path / "data")
    one, two = file(data, A, 0), file(data, C, 0)
    contents = (one.read_bytes(), two.read_bytes())
    swap(one, two)
    async with opened(data) as storage:
        await storage.commit([Trim(A, COUNT)])
        await storage.delete_topics([ORDERS.id])
    assert one.read_bytes() == contents[1], "it is the other topic's"
    swap(one, two)
    async with opened(data) as storage:
        assert await genuine(storage, C) == set(range(COUNT))


@pytest.mark.parametrize("write", [False, True])
async def test_files_that_are_swapped_under_the_running_broker(tmp_path: Path, write: bool) -> None:
    data = await build(tmp_path / "data")
    storage = file_storage(data, open_files=1)  # each file is opened anew
    await storage.open()
    swap(file(data, A, -1), file(data, B, -1))
    if write:
        with pytest.raises(StorageFenced, match="moved or swapped"):
            await fill(storage, [ORDERS], COUNT, 1)
    else:
        with pytest.raises(DataDamaged, match="moved or swapped"):
            await storage.read(A, COUNT - 1, 1000)
    await storage.close()


async def test_compaction_leaves_swapped_segments_alone(tmp_path: Path) -> None:
    topic = compacted_topic()
    other = make_topic("other", segment_bytes="400")
    async with opened(tmp_path / "data") as storage:
        await storage.create_topics([topic, other])
        for number in range(COUNT):
            await storage.commit([put(topic.partition(0), (b"same", b"%d" % number))])
            await storage.commit([append(other.partition(0), b"%d" % number)])
    one, two = (file(tmp_path / "data", each.partition(0), 0) for each in (topic, other))
    contents = (one.read_bytes(), two.read_bytes())
    swap(one, two)
    async with opened(tmp_path / "data") as storage:
        await storage.compact()
        assert (two.read_bytes(), one.read_bytes()) == contents


async def test_compacted_segments_have_headers_too(tmp_path: Path) -> None:
    topic = compacted_topic()
    async with opened(tmp_path / "data") as storage:
        await storage.create_topics([topic])
        for number in range(COUNT):
            await storage.commit([put(topic.partition(0), (b"%d" % (number % 3), b"%d" % number))])
        await storage.compact()
    [first, second, *_] = sorted((tmp_path / "data").glob("topics/*/*-1.log"))
    swap(first, second)
    assert {str(first), str(second)} <= {each.path for each in findings(tmp_path / "data")}
    async with opened(tmp_path / "data") as storage:
        with pytest.raises(DataDamaged, match=second.name):
            await storage.read(topic.partition(0), 0, 1000)


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("lost", [False, True], ids=["", "catalog lost"])
async def test_a_directory_of_format_1_is_read_and_written(tmp_path: Path, kind: str, lost: bool) -> None:
    """As the version before headers left it (`format1.tar.gz`): stopped, and killed with frames to replay."""
    shutil.unpack_archive(Path(__file__).with_name("format1.tar.gz"), tmp_path, filter="data")
    data = tmp_path / kind
    if kind == "clean" and not lost:
        assert not findings(data)
    if lost:
        (data / "catalog.sqlite").write_bytes(b"no database at all " * 100)
        for suffix in ("-wal", "-shm"):
            (data / f"catalog.sqlite{suffix}").unlink(missing_ok=True)
    prices = PartitionId(TopicId(b"p" * 16), 0)
    more = 8
    async with opened(data) as storage:
        for partition in (A, B):
            assert await read_all(storage, partition) == old(partition, 24)
        found = {offset: record.value for offset, record in (await read_records(storage, prices)).items()}
        assert found == {offset: b"prices-%d" % offset for offset in range(15, 24)}
        for number in range(24, 24 + more):
            for partition in (A, B):
                await storage.commit([append(partition, b"orders-%d-%d" % (partition.index, number))])
            await storage.commit([put(prices, (b"%d" % (number % 3), b"prices-%d" % number))])
        await storage.compact()
    async with opened(data) as storage:
        for partition in (A, B):
            assert await read_all(storage, partition) == old(partition, 24 + more)
            first = await storage.find_timestamp(partition, 0)
            assert first is not None and first.offset == 0
        assert {29, 30, 31} <= (await read_records(storage, prices)).keys() < set(range(15, 32))
    assert not findings(data)


def old(partition: PartitionId, count: int) -> dict[int, bytes]:
    return {offset: b"orders-%d-%d" % (partition.index, offset) for offset in range(count)}


class BadSector(FaultyDisk):
    """The first bytes of one file cannot be read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = str(path)

    def read(self, handle: int, size: int, position: int) -> bytes:
        self._fail_at(handle, position)
        return super().read(handle, size, position)

    def read_now(self, handle: int, size: int, position: int) -> bytearray | None:
        self._fail_at(handle, position)
        return super().read_now(handle, size, position)

    def _fail_at(self, handle: int, position: int) -> None:
        if self._paths[handle] == self._path and position < 16:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)


async def test_a_bad_first_sector_costs_no_more_than_itself(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = await build(tmp_path / "data")
    path = file(data, A, 0)
    async with opened(data, disk=BadSector(path)) as storage:
        assert f"{path}: its first bytes cannot be read" in caplog.text
        for partition in ALL:
            assert await genuine(storage, partition) == set(range(COUNT))
        await fill(storage, [ORDERS], COUNT, 3)
        await storage.delete_topics([ORDERS.id])
    assert not path.exists()


async def test_a_bad_first_sector_of_the_segment_that_is_written_to(tmp_path: Path) -> None:
    data = await build(tmp_path / "data")
    path = file(data, A, -1)
    size = path.stat().st_size
    async with opened(data, disk=BadSector(path)) as storage:
        await fill(storage, [ORDERS], COUNT, 1)
    assert path.stat().st_size > size


async def test_a_segment_that_cannot_be_opened_keeps_no_other_from_being_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = await build(tmp_path / "data")
    path = file(data, A, 0)
    disk = FaultyDisk()
    disk.fail("open", str(path), errno.EACCES, for_ever=True)
    async with opened(data, disk=disk) as storage:
        assert str(path) in caplog.text
        assert await genuine(storage, B) == set(range(COUNT))
        assert COUNT - 1 in values_in((await storage.read(A, COUNT - 1, 1000)).data)
        with pytest.raises(Unavailable, match=path.name):
            await storage.read(A, 0, 1000)


async def test_appends_to_more_segments_than_may_be_open_read_nothing(tmp_path: Path) -> None:
    topic = make_topic("many", 4, segment_bytes="100000")
    disk = FaultyDisk()
    async with opened(tmp_path / "data", disk=disk, open_files=1) as storage:
        await storage.create_topics([topic])
        await fill(storage, [topic], count=1)
        before = disk.calls["read"], disk.calls["read_now"]
        await fill(storage, [topic], 1, 3)
        assert (disk.calls["read"], disk.calls["read_now"]) == before
