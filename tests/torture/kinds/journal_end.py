"""The end of the journal is damaged while the broker is away: the segments have what its last frames held.

Only frames that hold nothing but records are hit. What else is in a frame (offsets of groups, states of
transactions, acknowledgements) is in no other place, and is lost with it. The frame that was being written is
left out, too: it was not acknowledged, and nothing has to be said of it.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

from posthouse.records.batch import iter_headers
from posthouse.storage.files.journal.head import read_head
from posthouse.storage.files.journal.journal import FRAME_HEADER, head_path, journal_files
from posthouse.storage.files.journal.reader import JournalEntry, PutEntry, frames_in
from posthouse.storage.files.system.disk import OsDisk
from tests.checker.history import History
from tests.checker.judge import check
from tests.torture.brokers import Recipe, errors_in
from tests.torture.campaign import Arena, Kind

_TRIES = 3
"""Kills in a round until there is something to hit: the last frame may hold more than records."""
_REPORT = "the journal is damaged"
_WITHOUT_TRACE = ("zeroed frames", "cut journal")
_WAYS = ("flipped bits", *_WITHOUT_TRACE)


class JournalEnd(Kind):
    name = "journal-end"

    def __init__(self, *, without_head: bool = False) -> None:
        """`without_head` takes away what proves that frames are missing: for a negative control."""
        self._without_head = without_head
        self._recipe: Recipe | None = None
        self._hits = 0

    def plain_recipe(self, place: Path) -> Recipe:
        self._recipe = Recipe(data=place / "data", log=place / "broker.log")
        return self._recipe

    async def strike(self, arena: Arena) -> None:
        for _ in range(_TRIES):
            await arena.ensure_running()
            await arena.some_progress()
            await arena.kill()
            # Of flipped bits the headers of frames tell, also without a head.
            ways = _WITHOUT_TRACE if self._without_head else _WAYS
            what = damage_end(arena.recipe.data, arena.random, ways)
            if self._without_head:
                forget_head(arena.recipe.data)
            if what is not None:
                arena.recorder.fault(what)
                self._hits += 1
                return

    def judge(self, history: History) -> list[str]:
        """Nothing may be missing, and the broker has to say each time that something was."""
        assert self._recipe is not None
        reports = sum(_REPORT in each for each in errors_in(self._recipe.log))
        found = [str(each) for each in check(history).anomalies]
        if reports < self._hits:
            found.append(f"damage that the broker did not report: {self._hits - reports} of {self._hits}")
        return found

    def alarms(self, complaints: list[str]) -> list[str]:
        return [each for each in complaints if " posthouse.storage." not in each]


def damage_end(data: Path, random: Random, ways: Sequence[str] = _WAYS) -> str | None:
    """Damage some of the last frames; what was done, None where the last one holds more than records."""
    disk = OsDisk()
    files = [file for file in journal_files(disk, str(data / "journal")) if frames_in(disk, file)]
    if not files:
        return None
    path = Path(files[-1].path)
    content = bytearray(path.read_bytes())
    frames = []
    for position, number, entries in frames_in(disk, files[-1]):
        length = FRAME_HEADER.unpack_from(content, position)[3]
        frames.append((position, position + FRAME_HEADER.size + length, number, entries))
    head = read_head(disk, head_path(str(data / "journal")))
    acknowledged = frames[-1][2] if head is None else head.written
    frames = [each for each in frames if each[2] <= acknowledged]
    checkpointed = _checkpointed(data)
    hit: list[tuple[int, int]] = []
    while frames and frames[-1][2] > checkpointed and _holds_records_only(frames[-1][3]):
        first, end, _, _ = frames.pop()
        hit.insert(0, (first, end))
    if not hit:
        return None
    hit = hit[-random.randint(1, len(hit)) :]
    first, end = hit[0][0], hit[-1][1]
    what = random.choice(ways)
    if what == "flipped bits":
        for start, stop in hit:
            content[random.randrange(start, stop)] ^= 1 << random.randrange(8)
    elif what == "zeroed frames":
        content[first:end] = bytes(end - first)
    else:
        del content[random.randrange(first, hit[0][1]) :]
    path.write_bytes(content)
    return what


def _checkpointed(data: Path) -> int:
    with closing(sqlite3.connect(f"file:{data / 'catalog.sqlite'}?mode=ro", uri=True)) as catalog:
        found = catalog.execute("SELECT value FROM meta WHERE key = 'frame'").fetchone()
    return int(found[0]) if found else 0


def _holds_records_only(entries: list[JournalEntry | PutEntry]) -> bool:
    for each in entries:
        if isinstance(each, PutEntry) or each.batch is None:
            return False
        if any(header.is_control for _, header in iter_headers(each.batch)):
            return False
    return True


def forget_head(data: Path) -> None:
    """As versions left a directory that did not write one."""
    Path(head_path(str(data / "journal"))).unlink(missing_ok=True)
    with closing(sqlite3.connect(data / "catalog.sqlite")) as catalog, catalog:
        catalog.execute("DELETE FROM meta WHERE key = 'journal_head'")
