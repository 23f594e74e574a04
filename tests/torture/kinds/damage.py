"""Bytes that change while the broker is away: what they do not hit is served, the rest is reported, and
nobody ever reads anything that was not sent."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from crc32c import crc32c

from posthouse.records.batch import ATTRIBUTES_AT, CRC_AT, BatchHeader, iter_headers
from posthouse.records.record import iter_records
from posthouse.storage.files.journal.journal import FRAME_HEADER, journal_files
from posthouse.storage.files.journal.reader import PutEntry, frames_in
from posthouse.storage.files.recovery.tails import NO_END
from posthouse.storage.files.segments.reader import walk
from posthouse.storage.files.segments.segment import HEADER_BYTES, parse_segment_name
from posthouse.storage.files.system.disk import OsDisk
from tests.checker.history import History
from tests.checker.judge import check
from tests.torture.brokers import Recipe, errors_in
from tests.torture.campaign import Arena, Kind
from tests.torture.stream.links import decode_value

_NONSENSE = 64


@dataclass(frozen=True, slots=True)
class Hit:
    """What was damaged, and the values of the records that were hit."""

    what: str
    values: frozenset[int] = frozenset()


@dataclass(slots=True)
class Files:
    """Those of a broker that is away."""

    data: Path
    random: Random
    hit: set[Path] = field(default_factory=set)
    """Segments that were damaged before. A second time would hide what lies between the two places: nothing
    proves any more where it belongs."""


Damage = Callable[[Files], "Hit | None"]


class DamagedFiles(Kind):
    name = "damage"

    def __init__(self, *damages: Damage) -> None:
        self._damages = damages or (
            *(hit_a_batch, hit_a_header, cut_a_segment, hit_an_index),
            *(hit_the_catalog, hit_the_backup, hit_a_frame, tear_the_tail),
        )
        self._hit: set[int] = set()
        self._segments: set[Path] = set()
        self._recipe: Recipe | None = None

    def plain_recipe(self, place: Path) -> Recipe:
        self._recipe = Recipe(data=place / "data", log=place / "broker.log")
        return self._recipe

    async def strike(self, arena: Arena) -> None:
        broker = await arena.ensure_running()
        await arena.some_progress()
        if arena.random.random() < 0.5:
            await arena.kill()
        else:
            await arena.stop_clients()
            await broker.stop()
        damage = arena.random.choice(self._damages)
        if damage in _TWINS:
            # Where both copies of the catalog are damaged, a broker says so and does not start.
            self._damages = tuple(each for each in self._damages if each is damage or each not in _TWINS)
        hit = damage(Files(arena.recipe.data, arena.random, self._segments))
        if hit is not None:
            arena.recorder.fault(hit.what)
            self._hit |= hit.values

    def judge(self, history: History) -> list[str]:
        """A record that was hit may be missing if the broker said so. Whatever else is wrong, is wrong."""
        assert self._recipe is not None
        anomalies = check(history).anomalies
        excused = [each for each in anomalies if not self._hit.isdisjoint(each.values)]
        found = [str(each) for each in anomalies if self._hit.isdisjoint(each.values)]
        if excused and not errors_in(self._recipe.log):
            found.append(f"damage that nobody reported: {excused[0]}")
        return found

    def alarms(self, complaints: list[str]) -> list[str]:
        return [each for each in complaints if " posthouse.storage." not in each]


def hit_a_batch(files: Files) -> Hit | None:
    """A sector of nonsense, or a flipped bit. Not in the marker of a transaction: how readers take it that
    one is missing is up to them."""
    batches = [each for each in _batches(files) if not each.header.is_control]
    if not batches:
        return None
    chosen = files.random.choice(batches)
    first = files.random.randrange(chosen.position, chosen.position + chosen.header.length)
    last = min(first + files.random.choice((1, _NONSENSE)), chosen.position + chosen.header.length)
    _overwrite(chosen.path, first, last - first, files.random)
    files.hit.add(chosen.path)
    return Hit("damaged batch", chosen.values)


def hit_a_header(files: Files) -> Hit | None:
    """It says which segment a file is, and costs nothing when it is damaged."""
    paths = sorted(set(files.data.glob("topics/*/*.log")) - files.hit)
    if not paths:
        return None
    path = files.random.choice(paths)
    first = files.random.randrange(HEADER_BYTES)
    _overwrite(path, first, files.random.choice((1, HEADER_BYTES - first)), files.random)
    files.hit.add(path)
    return Hit("damaged header of a segment")


def cut_a_segment(files: Files) -> Hit | None:
    """The end of a file is gone, from anywhere behind its last marker on."""
    batches = list(_batches(files))
    path = files.random.choice([each.path for each in batches]) if batches else None
    if path is None:
        return None
    own = [each for each in batches if each.path == path]
    markers = [number for number, each in enumerate(own) if each.header.is_control]
    tail = own[markers[-1] + 1 if markers else 0 :]
    if not tail:
        return None
    cut = files.random.randrange(len(tail))
    files.hit.add(path)
    with path.open("r+b") as file:
        file.truncate(tail[cut].position + files.random.randrange(tail[cut].header.length))
    return Hit("cut segment", frozenset().union(*(each.values for each in tail[cut:])))


def hit_an_index(files: Files) -> Hit | None:
    return _hit_anywhere(sorted(files.data.glob("topics/*/*.index")), "damaged index", files.random)


def hit_the_catalog(files: Files) -> Hit | None:
    return _hit_anywhere([files.data / "catalog.sqlite"], "damaged catalog", files.random)


def hit_the_backup(files: Files) -> Hit | None:
    return _hit_anywhere(
        [files.data / "catalog.backup.sqlite"], "damaged backup of the catalog", files.random
    )


def hit_a_frame(files: Files) -> Hit | None:
    """One that others follow, and that holds nothing but records: the broker's own notes are only there."""
    disk = OsDisk()
    frames = []
    for file in journal_files(disk, str(files.data / "journal")):
        found = frames_in(disk, file)
        for (position, _, entries), (end, _, _) in pairwise(found):
            batches = [each.batch for each in entries if not isinstance(each, PutEntry) and each.batch]
            if len(batches) == len(entries) and not any(_has_marker(batch) for batch in batches):
                values = frozenset(value for batch in batches for value in _values(batch))
                frames.append((Path(file.path), position, end, values))
    if not frames:
        return None
    path, first, end, values = files.random.choice(frames)
    _overwrite(path, files.random.randrange(first, end), 1, files.random)
    return Hit("damaged frame", values)


def tear_the_tail(files: Files) -> Hit | None:
    """What a write that was under way may leave behind the last frame: half of one like the first."""
    disk = OsDisk()
    journals = journal_files(disk, str(files.data / "journal"))
    frames = frames_in(disk, journals[-1]) if journals else []
    if len(frames) < 2:
        return None
    path = Path(journals[-1].path)
    whole = path.read_bytes()
    first, second, last = frames[0][0], frames[1][0], frames[-1][0]
    _, _, _, length, _ = FRAME_HEADER.unpack_from(whole, last)
    with path.open("r+b") as file:
        file.seek(last + FRAME_HEADER.size + length)
        file.write(whole[first:second][: files.random.randint(1, 200)])
    return Hit("torn journal")


_TWINS = (hit_the_catalog, hit_the_backup)


def forge_a_record(files: Files) -> Hit | None:
    """For a negative control: another value, its checksum right. No broker can notice; a checker must."""
    batches = [each for each in _batches(files) if not each.header.is_control and each.header.count == 1]
    if not batches:
        return None
    chosen = files.random.choice(batches)
    content = bytearray(chosen.path.read_bytes())
    batch = memoryview(content)[chosen.position : chosen.position + chosen.header.length]
    [value] = chosen.values
    at = bytes(batch).index(b"%d:" % value)
    batch[at] = ord("9") if batch[at] != ord("9") else ord("8")
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(batch[ATTRIBUTES_AT:]).to_bytes(4, "big")
    chosen.path.write_bytes(content)
    return Hit("forged record")


@dataclass(frozen=True, slots=True)
class _Batch:
    path: Path
    position: int
    header: BatchHeader
    values: frozenset[int]


def _batches(files: Files) -> Iterator[_Batch]:
    """Those of all segments that were not hit yet."""
    for path in sorted(set(files.data.glob("topics/*/*.log")) - files.hit):
        content = path.read_bytes()
        named = parse_segment_name(path.name)
        assert named is not None

        def read(size: int, position: int, content: bytes = content) -> bytes:
            return content[position : position + size]

        for step in walk(read, 0, len(content), named.base_offset, NO_END):
            if step.header is not None:
                yield _Batch(path, step.position, step.header, frozenset(_values(step.batch)))


def _values(batch: memoryview) -> list[int]:
    [(_, header)] = iter_headers(batch)
    return [] if header.is_control else [decode_value(each.value or b"") for each in iter_records(batch)]


def _has_marker(batch: memoryview) -> bool:
    return any(header.is_control for _, header in iter_headers(batch))


def _hit_anywhere(paths: list[Path], what: str, random: Random) -> Hit | None:
    path = random.choice(paths) if paths else None
    if path is None or not path.stat().st_size:
        return None
    _overwrite(path, random.randrange(path.stat().st_size), random.choice((1, _NONSENSE)), random)
    return Hit(what)


def _overwrite(path: Path, position: int, size: int, random: Random) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        before = file.read(size)
        file.seek(position)
        file.write(bytes(byte ^ random.randint(1, 255) for byte in before))
