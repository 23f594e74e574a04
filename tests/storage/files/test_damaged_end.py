"""Where the end of a log is damaged, a reader is led to the end: nobody waits below it for ever."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posthouse.records.batch import BatchHeader, iter_headers, parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.operations import Append
from tests.storage.batches import append, make_topic, values_in
from tests.storage.faults import FaultyDisk
from tests.storage.stores import crash_copy, opened

TOPIC = make_topic(segment_bytes="100000")
[PARTITION] = TOPIC.partition_ids()
COUNT = 5


async def build(directory: Path) -> Path:
    async with opened(directory) as storage:
        await storage.create_topics([TOPIC])
        for number in range(COUNT):
            await storage.commit([append(PARTITION, b"%d" % number)])
    [path] = directory.glob("topics/*/*.log")
    return path


def flip_last(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])


def flip_last_length(path: Path) -> None:
    """So that nobody can tell where the batch would end."""
    content = bytearray(path.read_bytes())
    size = (len(content) - 48) // COUNT
    content[len(content) - size + 8] ^= 0x7F
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


async def batches(storage: FileStorage, *, stable_only: bool = False) -> list[BatchHeader]:
    """What a reader gets who goes on where the last batch ends, up to the end."""
    bounds = storage.bounds(PARTITION)
    offset, end = bounds.start, bounds.stable if stable_only else bounds.end
    found = []
    while offset < end:
        part = await storage.read(PARTITION, offset, 1, stable_only=stable_only)
        assert part.data, f"nothing at {offset}"
        found += [header for _, header in iter_headers(part.data)]
        offset = found[-1].next_offset
    assert offset == end
    return found


@pytest.mark.parametrize(
    ("harm", "left"), [(flip_last, 4), (flip_last_length, 4), (cut, 2), (empty, 0), (remove, 0)]
)
async def test_a_reader_reaches_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], None], left: int
) -> None:
    harm(await build(tmp_path))
    async with opened(tmp_path) as storage:
        found = await batches(storage)
        assert [header.base_offset for header in found] == list(range(left + 1))
        assert [header.is_damage for header in found] == [False] * left + [True]
        assert (found[-1].count, found[-1].next_offset) == (0, COUNT)
        assert f"orders-0: {storage._logs[PARTITION].segments[0].path} is damaged" in caplog.text
        assert f"offsets {left} to {COUNT - 1}" in caplog.text
        assert (await storage.read(PARTITION, COUNT, 1000)).data == b""
        await storage.commit([append(PARTITION, b"later")])
        assert values_in((await storage.read(PARTITION, left, 1000)).data) == {COUNT: b"later"}


@pytest.mark.parametrize("harm", [flip_last, flip_last_length, cut, empty, remove])
async def test_a_reader_reaches_the_end_though_the_catalog_was_lost_as_well(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    """Then there may be no segment, or an empty one, behind the offsets that are known to have been."""
    harm(await build(tmp_path))
    (tmp_path / "catalog.sqlite").write_bytes(b"no database at all " * 100)
    async with opened(tmp_path) as storage:
        assert storage.bounds(PARTITION).end == COUNT
        found = await batches(storage)
        assert found[-1].is_damage and not any(header.is_damage for header in found[:-1])
        await storage.commit([append(PARTITION, b"later")])
        assert (await storage.read(PARTITION, COUNT, 1000)).data


@pytest.mark.parametrize(("harm", "left"), [(flip_last, 4), (flip_last_length, 4), (cut, 2), (empty, 0)])
async def test_the_end_stays_though_the_bytes_of_a_range_entry_are_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], None], left: int
) -> None:
    """The journal has only the place of these batches. Their offsets were acknowledged all the same."""
    topic = make_topic(segment_bytes="100000", durability="os", id=TOPIC.id)
    async with opened(tmp_path / "running") as storage:
        await storage.create_topics([topic])
        for number in range(COUNT):
            await storage.commit([append(PARTITION, b"%d" % number)])
        crashed = await crash_copy(storage, tmp_path / "crashed")
    [path] = crashed.glob("topics/*/*.log")
    harm(path)
    for _ in range(2):  # found in the journal, then in the catalog
        async with opened(crashed) as storage:
            assert storage.bounds(PARTITION).end == COUNT
            found = await batches(storage)
            assert [header.base_offset for header in found] == list(range(left + 1))
            assert (found[-1].is_damage, found[-1].next_offset) == (True, COUNT)
            assert (await storage.read(PARTITION, COUNT, 1000)).data == b""
    assert f"offsets {COUNT - 1} to {COUNT - 1}" in caplog.text
    async with opened(crashed) as storage:
        await storage.commit([append(PARTITION, b"later")])
        assert values_in((await storage.read(PARTITION, left, 1000)).data) == {COUNT: b"later"}
        again = await crash_copy(storage, tmp_path / "again")
    for data in (crashed, again):
        async with opened(data) as storage:
            assert values_in((await storage.read(PARTITION, left, 1000)).data) == {COUNT: b"later"}


async def test_what_was_appended_behind_a_damaged_end_is_not_reported_as_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip_last(await build(tmp_path))
    async with opened(tmp_path) as storage:
        for value in (b"later", b"latest"):
            await storage.commit([append(PARTITION, value)])
        assert values_in((await storage.read(PARTITION, COUNT - 1, 1000)).data) == {
            COUNT: b"later",
            COUNT + 1: b"latest",
        }
        [damage] = storage._logs[PARTITION].segments[0].damage
    assert (damage.first_offset, damage.next_offset) == (COUNT - 1, COUNT)
    assert caplog.text.count("is damaged") == 1


async def test_a_segment_that_is_being_written_leads_no_reader_behind_the_durable_end(tmp_path: Path) -> None:
    """The next segment begins above the end: a batch before it is not durable either."""
    flip_last(await build(tmp_path))
    disk = FaultyDisk()
    async with opened(tmp_path, disk=disk) as storage:
        owner = storage._logs[PARTITION]
        disk.sync_gate.clear()
        try:
            small = storage.commit([append(PARTITION, b"small")])
            large = storage.commit([append(PARTITION, b"l" * 100_000)])
            assert owner.segments[-1].base_offset == COUNT + 1 > owner.end == COUNT
            part = await storage.read(PARTITION, COUNT - 1, 1000)
        finally:
            disk.sync_gate.set()
        [(_, header)] = iter_headers(part.data)
        assert header.is_damage and header.next_offset == COUNT
        await small
        await large


async def test_nothing_undecided_is_passed(tmp_path: Path) -> None:
    """A reader of what is decided must not be led behind the beginning of an open transaction."""
    async with opened(tmp_path) as storage:
        await storage.create_topics([TOPIC])
        await storage.commit([append(PARTITION, b"decided")])
        builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        builder.add(None, b"open", timestamp=1000)
        batch = builder.build()
        await storage.commit([Append(PARTITION, memoryview(batch), parse_header(batch))])
    [path] = tmp_path.glob("topics/*/*.log")
    path.unlink()
    async with opened(tmp_path) as storage:
        assert storage.bounds(PARTITION).stable == 1
        [header] = await batches(storage, stable_only=True)
        assert (header.is_damage, header.next_offset) == (True, 1)
        assert (await storage.read(PARTITION, 1, 1000, stable_only=True)).data == b""
        [header] = await batches(storage)
        assert (header.is_damage, header.next_offset) == (True, 2)
