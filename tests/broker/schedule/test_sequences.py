"""Sequences rise for ever."""

from collections.abc import Mapping

import pytest

from posthouse.broker.schedule.sequences import Sequences
from posthouse.model.clock import ManualClock
from posthouse.model.errors import DataDamaged
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.spaces import Space

HOUR = 3_600_000


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.storage = MemoryStorage(self.clock)
        self.begin()

    def begin(self) -> None:
        """A start of the broker."""
        self.sequences = Sequences(self.storage, self.clock, b"\x03")
        assert self.sequences.load(self.stored) == {}

    @property
    def stored(self) -> Mapping[bytes, bytes]:
        return dict(self.storage._state.get(Space.SCHEDULE, {}))

    async def new(self) -> int:
        while not self.sequences.is_ready:
            await self.sequences.reserve()
        return self.taken()

    def taken(self) -> int:
        return int.from_bytes(self.sequences.new(), "big")


async def test_they_rise_and_are_even() -> None:
    scene = Scene()
    made = []
    for step in (0, 0, 1, 5000, -3000, -HOUR, 0, HOUR, 2 * HOUR):
        scene.clock.jump(step)
        made += [await scene.new() for _ in range(3)]
    for _ in range(3):
        scene.begin()
        made.append(await scene.new())
        scene.clock.jump(-HOUR)
        scene.begin()
        made.append(await scene.new())
    assert made == sorted(set(made))
    assert all(each % 2 == 0 for each in made)


async def test_nothing_beyond_the_ceiling() -> None:
    """Not if the clock is set forward after the look at `is_ready`, and not before the first reservation."""
    scene = Scene()
    first = scene.taken()
    assert first >= scene.clock.now_ms() << 16, "behind those of versions that stored no ceiling"
    assert not scene.sequences.is_ready
    await scene.sequences.reserve()
    assert scene.sequences.is_ready
    last = await scene.new()
    scene.clock.jump(24 * HOUR)
    assert not scene.sequences.is_ready
    later = scene.taken()
    assert first < last < later < scene.sequences._ceiling
    scene.begin()
    assert await scene.new() > later


async def test_one_commit_for_many() -> None:
    scene = Scene()
    await scene.new()
    [before] = scene.stored.values()
    for _ in range(100):
        scene.clock.advance(4)
        await scene.new()
    assert list(scene.stored.values()) == [before]
    scene.clock.advance(300)
    await scene.new()
    assert list(scene.stored.values()) != [before]


@pytest.mark.parametrize("value", [b"", bytes(9), b"\x02" + bytes(8), b"\x01" + bytes(9)])
def test_damaged(value: bytes) -> None:
    with pytest.raises(DataDamaged, match="the sequences of the schedule"):
        Scene().sequences.load({b"\x03\xff\xff\xff\xfe": value})
