"""Bytes that change or vanish: never wrong data, never more lost than was hit, never an untyped error."""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from posthouse.model.errors import DataDamaged
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers, stamp
from posthouse.storage.bounds import Bounds
from posthouse.storage.files.catalog.catalog import BACKUP
from posthouse.storage.files.journal.journal import FRAME_HEADER, journal_files
from posthouse.storage.files.journal.reader import PutEntry
from posthouse.storage.files.journal.reader import frames_in as frames_of
from posthouse.storage.files.segments.segment import HEADER_BYTES, parse_segment_name
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.operations import Put, Trim
from posthouse.storage.spaces import Space
from tests.alarms import alarms
from tests.directories import IN_MEMORY
from tests.storage.batches import append, make_batch, make_topic, read_all
from tests.storage.stores import Ledger, crash_copy, opened

Place = tuple[PartitionId, int]
Damage = Callable[[bytes, int], bytes]
Change = Callable[[bytes], bytes | None]


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]


def flip_bit(position: int, bit: int) -> Change:
    return lambda data: data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


def overwrite(data: bytes, position: int) -> bytes:
    """A sector of nonsense."""
    return data[:position] + b"\xa5" * min(64, len(data) - position) + data[position + 64 :]


def truncate(data: bytes, position: int) -> bytes:
    return data[:position]


DAMAGES = [flip, overwrite, truncate]


def at(damage: Damage, position: int) -> Change:
    return lambda data: damage(data, position)


@dataclass(frozen=True)
class Store:
    """One history, as a clean stop left it and as a crash did."""

    clean: Path
    crashed: Path
    ledger: Ledger
    topics: list[Topic]
    place: Path


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """In memory: a thousand copies are opened."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as name:
        yield asyncio.run(build(Path(name)))


async def build(place: Path) -> Store:
    ledger = Ledger()
    topics = [
        make_topic("small", 2, segment_bytes="300", index_interval_bytes="0"),
        make_topic("large", 1, segment_bytes="5000"),
    ]
    partitions = [partition for topic in topics for partition in topic.partition_ids()]
    async with opened(place / "clean", journal_bytes=4000) as storage:
        await storage.create_topics(topics)
        await ledger.produce_many(storage, *partitions, count=40)
        await storage.commit([Put(Space.OFFSETS, b"group", b"1")])
        await storage.checkpoint()
        await ledger.produce_many(storage, *partitions, count=10)
        await ledger.produce(storage, *partitions)
        await storage.commit([Put(Space.OFFSETS, b"group", b"2")])
        await ledger.produce_at_once(storage, *partitions, count=6)
        await ledger.produce_many(storage, partitions[0], count=3)
        crashed = await crash_copy(storage, place / "crashed")
    return Store(place / "clean", crashed, ledger, topics, place)


async def lost_after(
    store: Store, source: Path, path: Path, change: Change
) -> tuple[set[Place], bytes | None]:
    """What is not served when a file was changed (or removed, None), and the group's offset."""
    target = store.place / "damaged"
    shutil.copytree(source, target)
    try:
        victim = target / path.relative_to(source)
        data = change(victim.read_bytes())
        if data is None:
            victim.unlink()
        else:
            victim.write_bytes(data)
        async with opened(target, journal_bytes=4000) as storage:
            assert {topic.id for topic in store.topics} == set(storage.topics)
            state = storage.take_state(Space.OFFSETS).get(b"group")
            lost = await store.ledger.lost(storage)
        return {(partition, offset) for partition, gone in lost.items() for offset in gone}, state
    finally:
        shutil.rmtree(target)


def positions(size: int, count: int) -> list[int]:
    return sorted({*range(0, size, max(size // count, 1)), size - 1} - {-1})


def batches_in(store: Store, source: Path, path: Path) -> list[tuple[int, int, Place]]:
    """Where each batch of a segment begins and ends, and its place in the log."""
    named = parse_segment_name(path.name)
    assert named is not None
    partition = PartitionId(TopicId(bytes.fromhex(path.parent.name)), named[0])
    found = iter_headers(path.read_bytes()[HEADER_BYTES:])
    return [
        (HEADER_BYTES + at, HEADER_BYTES + at + header.length, (partition, header.base_offset))
        for at, header in found
    ]


def frames_in(path: Path) -> list[tuple[int, set[Place]]]:
    """Where each frame of a journal file begins, and which records it holds."""
    disk = OsDisk()
    [file] = [each for each in journal_files(disk, str(path.parent)) if each.path == str(path)]
    return [
        (
            position,
            {
                (PartitionId(TopicId(entry.topic), entry.partition), offset)
                for entry in entries
                if not isinstance(entry, PutEntry)
                for offset in range(entry.offset, entry.next_offset)
            },
        )
        for position, _, entries in frames_of(disk, file)
    ]


def path_end(path: Path) -> int:
    """Where the last frame of a journal file ends."""
    position, _ = frames_in(path)[-1]
    _, _, _, length, _ = FRAME_HEADER.unpack_from(path.read_bytes(), position)
    return position + FRAME_HEADER.size + int(length)


def needed_from(source: Path, path: Path) -> int:
    """Where the first frame of a journal file begins that is not checkpointed."""
    with closing(sqlite3.connect(source / "catalog.sqlite")) as catalog:
        [[frame]] = catalog.execute("SELECT value FROM meta WHERE key = 'frame'")
    [file] = [each for each in journal_files(OsDisk(), str(path.parent)) if each.path == str(path)]
    numbered = [(number, position) for position, number, _ in frames_of(OsDisk(), file)]
    return min((position for number, position in numbered if number > int(frame)), default=path_end(path))


def segments_of(source: Path) -> list[Path]:
    return sorted(source.glob("topics/*/*.log"))


async def test_without_damage_everything_is_there(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    for source in (store.clean, store.crashed):
        lost, state = await lost_after(store, source, source / "lock", lambda data: data)
        assert not lost and state == b"2"
    assert not alarms(caplog)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["clean", "crashed"])
async def test_a_damaged_segment_costs_the_batches_that_were_hit(
    store: Store, damage: Damage, kind: str
) -> None:
    source: Path = getattr(store, kind)
    for path in segments_of(source)[::3]:
        batches = batches_in(store, source, path)
        size = path.stat().st_size
        for position in positions(size, 8):
            lost, state = await lost_after(store, source, path, at(damage, position))
            end = {"flip": position + 1, "overwrite": position + 64, "truncate": size}[damage.__name__]
            hit = {place for start, stop, place in batches if start < end and stop > position}
            assert lost <= hit, f"{damage.__name__} at {position} of {path}"
            assert kind == "crashed" or lost == hit
            assert state == b"2"


async def test_every_byte_of_a_batch_header_is_guarded(store: Store) -> None:
    source = store.clean
    path = segments_of(source)[0]
    (_, first_end, _), (_, second_end, second), *_ = batches_in(store, source, path)
    for position in range(first_end, first_end + 61):
        lost, _ = await lost_after(store, source, path, at(flip, position))
        assert lost == {second}, f"byte {position - first_end}"
    for bit in range(8):
        lost, _ = await lost_after(store, source, path, flip_bit(first_end + 7, bit))
        assert lost == {second}, f"bit {bit} of the offset"
    assert second_end > first_end


@pytest.mark.parametrize("kind", ["clean", "crashed"])
@pytest.mark.parametrize("change", [lambda _: None, lambda _: b""], ids=["missing", "empty"])
async def test_a_segment_that_is_gone_costs_what_it_held(store: Store, kind: str, change: Change) -> None:
    source: Path = getattr(store, kind)
    for path in segments_of(source)[::2]:
        lost, _ = await lost_after(store, source, path, change)
        held = {place for _, _, place in batches_in(store, source, path)}
        assert lost <= held
        assert kind == "crashed" or lost == held


@pytest.mark.parametrize("kind", ["clean", "crashed"])
async def test_indexes_are_never_relied_on(store: Store, kind: str) -> None:
    source: Path = getattr(store, kind)
    for path in sorted(source.glob("topics/*/*.index"))[::4]:
        size = path.stat().st_size
        for change in (*damages_at(positions(size, 6)), lambda _: None, lambda _: b"", lambda d: d + d):
            lost, _ = await lost_after(store, source, path, change)
            assert not lost, path


def damages_at(places: Sequence[int]) -> list[Change]:
    return [at(damage, position) for damage in DAMAGES for position in places]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_journal_frame_is_found_again_in_the_segments(
    store: Store, damage: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    source = store.crashed
    for path in sorted(source.glob("journal/*.wal")):
        needed = needed_from(source, path)
        for position in positions(path_end(path), 25):
            caplog.clear()
            lost, _ = await lost_after(store, source, path, at(damage, position))
            assert not lost, f"{position} of {path}"
            is_hit = damage is truncate or position >= needed
            assert ("the journal is damaged" in caplog.text) or not is_hit, f"{position} of {path}"


async def test_damage_in_the_middle_of_the_journal_is_reported(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    source = store.crashed
    path = sorted(source.glob("journal/*.wal"))[-1]
    first, *_, (last, _) = frames_in(path)
    for position in (first[0], first[0] + 10, first[0] + 40, last - 1):
        caplog.clear()
        lost, _ = await lost_after(store, source, path, at(flip, position))
        assert not lost
        assert "the journal is damaged" in caplog.text


@pytest.mark.parametrize("change", [lambda _: None, lambda _: b""], ids=["missing", "empty"])
async def test_a_journal_file_that_is_gone(store: Store, change: Change) -> None:
    source = store.crashed
    for path in sorted(source.glob("journal/*.wal")):
        lost, _ = await lost_after(store, source, path, change)
        assert not lost


@pytest.mark.parametrize("name", ["catalog.sqlite", "catalog.backup.sqlite"])
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["clean", "crashed"])
async def test_one_damaged_catalog_costs_nothing(store: Store, name: str, suffix: str, kind: str) -> None:
    source: Path = getattr(store, kind)
    path = source / f"{name}{suffix}"
    if not path.exists():
        pytest.skip("a clean stop leaves none")
    size = path.stat().st_size
    for change in (*damages_at(positions(size, 10)), lambda _: None, lambda _: b""):
        lost, state = await lost_after(store, source, path, change)
        assert not lost
        assert state == b"2"


async def test_every_part_of_the_catalog_is_guarded(store: Store) -> None:
    path = store.clean / "catalog.sqlite"
    used = [at for at, byte in enumerate(path.read_bytes()) if byte]
    for position in used[::29]:
        lost, state = await lost_after(store, store.clean, path, at(flip, position))
        assert not lost and state == b"2", position


async def test_a_backup_that_is_damaged_while_it_is_used_is_made_again(tmp_path: Path) -> None:
    backup = tmp_path / BACKUP
    async with opened(tmp_path) as storage:
        await storage.create_topics([make_topic("before")])
        catalog = storage._catalog

        def damage() -> None:
            assert catalog._backup is not None
            catalog._backup.close()
            backup.write_bytes(b"x" * 8192)
            catalog._backup = sqlite3.connect(backup, isolation_level=None, check_same_thread=False)

        await storage._background.do(damage)  # on its thread: the backup is updated behind the creation
        await storage.create_topics([make_topic("after")])
    with closing(sqlite3.connect(backup)) as found:
        assert {name for (name,) in found.execute("SELECT name FROM topics")} == {"before", "after"}


@pytest.mark.parametrize("change", [lambda _: None, lambda _: b"", lambda data: b"x" * len(data)])
async def test_without_any_catalog_the_store_says_what_is_wrong(store: Store, change: Change) -> None:
    both = Path(shutil.copytree(store.clean, store.place / "both"))
    path = both / "catalog.sqlite"
    data = change(path.read_bytes())
    if data is None:
        path.unlink()
    else:
        path.write_bytes(data)
    try:
        with pytest.raises(DataDamaged, match=r"catalog\.sqlite.*restore"):
            await lost_after(store, both, both / "catalog.backup.sqlite", change)
    finally:
        shutil.rmtree(both)


@pytest.mark.parametrize("kind", ["clean", "crashed"])
async def test_a_damaged_store_goes_on(store: Store, kind: str) -> None:
    """What is served after damage is still served after more writes and another start."""
    source: Path = getattr(store, kind)
    segments = segments_of(source)
    victims = [segments[0], segments[-1], *source.glob("journal/*.wal"), source / "catalog.sqlite"]
    for number, victim in enumerate(victims):
        target = Path(shutil.copytree(source, store.place / f"{kind}-{number}"))
        path = target / victim.relative_to(source)
        path.write_bytes(overwrite(path.read_bytes(), path.stat().st_size // 2))
        served = Ledger()
        async with opened(target, journal_bytes=4000) as storage:
            for partition in store.ledger.acked:
                found = await read_all(storage, partition)
                served.acked[partition] = {offset: value for offset, value in found.items() if value}
            for _ in range(10):
                await served.produce(storage, *store.ledger.acked)
            await served.check(storage)
            crashed = await crash_copy(storage, store.place / f"{kind}-{number}-again")
        for place in (target, crashed):
            async with opened(place, journal_bytes=4000) as storage:
                await served.check(storage)
            shutil.rmtree(place)


async def test_offsets_are_not_given_again_when_the_catalog_is_lost(tmp_path: Path) -> None:
    """An emptied partition has no segment that would tell how far it was."""
    topic = make_topic(partitions=2)
    emptied, trimmed = topic.partition_ids()
    ledger = Ledger()
    async with opened(tmp_path) as storage:
        await storage.create_topics([topic])
        await ledger.produce_many(storage, emptied, trimmed, count=20)
        await storage.commit([Trim(emptied, 10), Trim(trimmed, 7)])
    (tmp_path / "catalog.sqlite").write_bytes(b"gone")
    async with opened(tmp_path) as storage:
        assert storage.bounds(emptied) == Bounds(10, 10, 10)
        assert storage.bounds(trimmed) == Bounds(7, 10, 10)
        await ledger.produce(storage, emptied, trimmed)
        assert set(await read_all(storage, emptied)) == {10}
        assert set(await read_all(storage, trimmed)) == {7, 8, 9, 10}


async def test_a_batch_inside_a_value_is_not_taken_for_one(tmp_path: Path) -> None:
    """A message may hold a copy of a log: when its own batch is damaged, the copy must not be served."""
    topic = make_topic(segment_bytes="100000")
    partition = topic.partition(0)
    copy = make_batch(b"not a record of this log")
    stamp(copy, 2, 0)
    async with opened(tmp_path) as storage:
        await storage.create_topics([topic])
        for value in (b"zero", b"one " + copy + copy, b"two", b"three"):
            await storage.commit([append(partition, value)])
    [path] = segments_of(tmp_path)
    data = path.read_bytes()
    outer = data.index(b"one ") - 100
    for position in range(outer + 33, outer + 94, 2):
        path.write_bytes(flip(data, position))
        async with opened(tmp_path) as storage:
            found = await read_all(storage, partition)
            assert found.items() >= {2: b"two", 3: b"three"}.items()
            assert b"not a record of this log" not in found.values()
