"""Many ranges of objects, by few reads: ranges that are near to each other are read together."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects

_READS_AT_ONCE = 8
_WIDEST_GAP = 64 * 1024
"""Ranges that are this near in an object are read together: bytes cost less than requests."""


class ByteRange(NamedTuple):
    key: str
    pos: int
    size: int


class RangeReads:
    def __init__(self, objects: HousekeptObjects) -> None:
        self._objects = objects
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """The bytes of each range, in the same order. Raises DataDamaged if an object is missing."""
        by_key: defaultdict[str, list[int]] = defaultdict(list)
        for number, each in enumerate(ranges):
            by_key[each.key].append(number)
        found: dict[int, memoryview] = {}
        for part in await asyncio.gather(
            *(self._of_object(key, ranges, numbers) for key, numbers in by_key.items())
        ):
            found |= part
        return [found[number] for number in range(len(ranges))]

    async def _of_object(
        self, key: str, ranges: Sequence[ByteRange], numbers: list[int]
    ) -> dict[int, memoryview]:
        numbers = sorted(numbers, key=lambda number: ranges[number].pos)
        groups = [[numbers[0]]]
        for before, number in pairwise(numbers):
            gap = ranges[number].pos - (ranges[before].pos + ranges[before].size)
            if gap > _WIDEST_GAP:
                groups.append([])
            groups[-1].append(number)
        found: dict[int, memoryview] = {}
        for group in groups:
            first, last = ranges[group[0]], ranges[group[-1]]
            async with self._reads:
                data = await self._objects.read(key, first.pos, last.pos + last.size - first.pos)
            view = memoryview(data)
            for number in group:
                at = ranges[number].pos - first.pos
                found[number] = view[at : at + ranges[number].size]
        return found
