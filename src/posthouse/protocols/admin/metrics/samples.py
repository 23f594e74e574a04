"""The values of one collection. Samples of one family stay together, as Prometheus wants them."""

import asyncio
from collections.abc import Iterator
from time import perf_counter
from typing import Final, TypeAlias

from posthouse.model.histogram import Histogram
from posthouse.protocols.admin.metrics.family import Family

Labels: TypeAlias = tuple[str, ...]
Value: TypeAlias = int | float | Histogram

SLICE_SECONDS: Final = 0.002
"""Work between two looks at what else the event loop has to do."""


class Turns:
    """Leaves the event loop to others from time to time."""

    def __init__(self) -> None:
        self._since = perf_counter()

    async def next(self) -> None:
        """To be called every few microseconds of work, and to return mostly at once."""
        if perf_counter() - self._since > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._since = perf_counter()


class Samples:
    def __init__(self) -> None:
        self._by_family: dict[Family, list[tuple[Labels, Value]]] = {}
        self.turns = Turns()

    def add(self, family: Family, value: Value, *labels: str) -> None:
        """`labels` are values in the order of the family's names."""
        found = self._by_family.get(family)
        if found is None:
            found = self._by_family[family] = []
        found.append((labels, value))

    def __iter__(self) -> Iterator[tuple[Family, list[tuple[Labels, Value]]]]:
        return iter(self._by_family.items())

    def of(self, family: Family) -> list[tuple[Labels, Value]]:
        return self._by_family.get(family, [])
