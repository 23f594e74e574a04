"""The values of one collection. Samples of one family stay together, as Prometheus wants them."""

from collections.abc import Iterator
from typing import TypeAlias

from posthouse.model.histogram import Histogram
from posthouse.protocols.admin.metrics.family import Family
from posthouse.protocols.admin.turns import Turns

Labels: TypeAlias = tuple[str, ...]
Value: TypeAlias = int | float | Histogram


class LabelBlock:
    """The labels of some samples, in their order. Compared by identity: renderings remember what they made
    of it."""

    __slots__ = ("__weakref__", "labels")

    def __init__(self, labels: tuple[Labels, ...]) -> None:
        self.labels = labels


class FamilySamples:
    """The samples of one family."""

    __slots__ = ("blocks", "singles")

    def __init__(self) -> None:
        self.blocks: list[tuple[LabelBlock, tuple[Value, ...]]] = []
        """Labels of several samples, and a value for each."""
        self.singles: list[tuple[Labels, Value]] = []

    def __iter__(self) -> Iterator[tuple[Labels, Value]]:
        for block, values in self.blocks:
            yield from zip(block.labels, values, strict=True)
        yield from self.singles


class Samples:
    def __init__(self) -> None:
        self._by_family: dict[Family, FamilySamples] = {}
        self.turns = Turns()

    def add(self, family: Family, value: Value, *labels: str) -> None:
        """`labels` are values in the order of the family's names."""
        self._of(family).singles.append((labels, value))

    def add_block(self, family: Family, block: LabelBlock, values: tuple[Value, ...]) -> None:
        self._of(family).blocks.append((block, values))

    def _of(self, family: Family) -> FamilySamples:
        found = self._by_family.get(family)
        if found is None:
            found = self._by_family[family] = FamilySamples()
        return found

    def __iter__(self) -> Iterator[tuple[Family, FamilySamples]]:
        return iter(self._by_family.items())
