"""A wall clock that jumps by hours and days, back and forth: no time limit is set, so nothing may expire."""

import mmap
import time
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from posthouse.model.clock import Clock
from posthouse.settings import Settings
from posthouse.storage.files.engine import FileStorage
from tests.checker.history import FinalRead, History, Watermarks
from tests.torture.brokers import Recipe
from tests.torture.campaign import Arena, Kind
from tests.torture.stream.trimming import TRIMMED

_AHEAD = Struct("=q")
_HOUR_MS = 3_600_000
JUMPS_MS = (-30 * 24 * _HOUR_MS, -5 * _HOUR_MS, -_HOUR_MS, 0, _HOUR_MS, 26 * _HOUR_MS, 40 * 24 * _HOUR_MS)
_FOR_EVER_MINUTES = 2**31 - 1


def make_exact(path: Path) -> None:
    path.write_bytes(_AHEAD.pack(0))


def jump(path: Path, ahead_ms: int) -> None:
    with path.open("r+b") as file:
        file.write(_AHEAD.pack(ahead_ms))


class JumpingClock:
    """As far ahead of the real time as a file says, which somebody else writes."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._shared = mmap.mmap(file.fileno(), _AHEAD.size, access=mmap.ACCESS_READ)

    def now_ms(self) -> int:
        ahead: int = _AHEAD.unpack(self._shared[: _AHEAD.size])[0]
        return time.time_ns() // 1_000_000 + ahead

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpingRecipe(Recipe):
    ahead: Path

    def clock(self) -> Clock:
        return JumpingClock(self.ahead)

    def settings(self) -> Settings:
        return self.plain_settings(offsets_retention_minutes=_FOR_EVER_MINUTES)

    def storage(self, clock: Clock) -> FileStorage:
        return self.plain_storage(clock, producer_expiry_ms=_FOR_EVER_MINUTES * 60_000)


class ClockJump(Kind):
    name = "clock-jump"

    def __init__(self) -> None:
        self._ahead = Path()

    def open(self, place: Path) -> None:
        self._ahead = place / "ahead"
        make_exact(self._ahead)

    def plain_recipe(self, place: Path) -> JumpingRecipe:
        return JumpingRecipe(
            data=place / "data", log=place / "broker.log", ahead=self._ahead, retention_check_seconds=0.2
        )

    async def strike(self, arena: Arena) -> None:
        await arena.ensure_running()
        await arena.some_progress()
        arena.recorder.fault(self.name)
        jump(self._ahead, arena.random.choice(JUMPS_MS))
        await arena.some_progress()
        if arena.random.random() < 0.3:
            await arena.kill()

    def judge(self, history: History) -> list[str]:
        """The checker takes it that a log may be trimmed. Nobody asks for that but in one partition."""
        starts = {
            each.partition: each.start
            for each in history
            if isinstance(each, Watermarks | FinalRead) and each.start > 0 and each.partition != TRIMMED
        }
        expired = [f"expired: {name}-{index} begins at {start}" for (name, index), start in starts.items()]
        return [*super().judge(history), *expired]
