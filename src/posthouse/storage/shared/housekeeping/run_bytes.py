"""The bytes of many runs: inline ones by one query, those in objects by few range reads."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.reads.runs import RunRow, damaged

_READS_AT_ONCE = 8
_WIDEST_GAP = 64 * 1024
"""Runs that are this near in an object are read together: bytes cost less than requests."""


class RunBytes:
    def __init__(self, objects: HousekeptObjects) -> None:
        self._objects = objects
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)

    async def read(self, connection: DatabaseConnection, runs: Sequence[RunRow]) -> list[bytes | memoryview]:
        """The bytes of each run, in the same order; empty for references.

        Raises DataDamaged if they are missing. The caller is the only one that truncates slots.
        """
        found: dict[int, bytes | memoryview] = {}
        inline = [number for number, run in enumerate(runs) if run.inline is not None]
        by_key: defaultdict[str, list[int]] = defaultdict(list)
        for number, run in enumerate(runs):
            if run.key is not None:
                by_key[run.key].append(number)
        found |= await self._inline(connection, runs, inline)
        reads = [self._object(key, runs, numbers) for key, numbers in by_key.items()]
        for part in await asyncio.gather(*reads):
            found |= part
        return [found.get(number, b"") for number in range(len(runs))]

    async def _inline(
        self, connection: DatabaseConnection, runs: Sequence[RunRow], numbers: Sequence[int]
    ) -> dict[int, bytes | memoryview]:
        if not numbers:
            return {}
        wanted = [runs[number] for number in numbers]
        answer = await connection.execute(
            "SELECT w.number, substring(d.data FROM w.pos + 1 FOR w.size) "
            "FROM unnest(%s::integer[], %s::smallint[], %s::bigint[], %s::integer[], %s::integer[]) "
            "AS w(number, slot, id, pos, size) JOIN inline_data d ON d.slot = w.slot AND d.id = w.id",
            [
                list(numbers),
                [run.slot for run in wanted],
                [run.inline for run in wanted],
                [run.pos for run in wanted],
                [run.size for run in wanted],
            ],
        )
        found: dict[int, bytes | memoryview] = {row[0]: row[1] for row in await answer.fetchall()}
        for number in numbers:
            if number not in found:
                raise damaged(runs[number], "the inline data is missing")
        return found

    async def _object(
        self, key: str, runs: Sequence[RunRow], numbers: list[int]
    ) -> dict[int, bytes | memoryview]:
        numbers = sorted(numbers, key=lambda number: runs[number].pos)
        groups = [[numbers[0]]]
        for before, number in pairwise(numbers):
            gap = runs[number].pos - (runs[before].pos + runs[before].size)
            if gap > _WIDEST_GAP:
                groups.append([])
            groups[-1].append(number)
        found: dict[int, bytes | memoryview] = {}
        for group in groups:
            first, last = runs[group[0]], runs[group[-1]]
            async with self._reads:
                data = await self._objects.read(key, first.pos, last.pos + last.size - first.pos)
            view = memoryview(data)
            for number in group:
                at = runs[number].pos - first.pos
                found[number] = view[at : at + runs[number].size]
        return found
