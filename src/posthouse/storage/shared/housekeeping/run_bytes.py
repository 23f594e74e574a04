"""The bytes of many runs: inline ones by one query, those in objects by few range reads."""

from collections.abc import Sequence

from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.housekeeping.range_reads import ByteRange, RangeReads
from posthouse.storage.shared.reads.runs import RunRow, damaged


class RunBytes:
    def __init__(self, objects: HousekeptObjects) -> None:
        self._ranges = RangeReads(objects)

    async def read(self, connection: DatabaseConnection, runs: Sequence[RunRow]) -> list[bytes | memoryview]:
        """The bytes of each run, in the same order; empty for references.

        Raises DataDamaged if they are missing: also if a slot was truncated because another broker has
        consolidated the runs, or their topic was deleted.
        """
        found: dict[int, bytes | memoryview] = {}
        inline = [number for number, run in enumerate(runs) if run.inline is not None]
        found |= await self._inline(connection, runs, inline)
        in_objects = {
            number: ByteRange(run.key, run.pos, run.size)
            for number, run in enumerate(runs)
            if run.key is not None
        }
        read = await self._ranges.read(list(in_objects.values()))
        found |= dict(zip(in_objects, read, strict=True))
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
