"""Objects that are shown by name, one row for each: its labels, and its values of several families.

The same objects are there in nearly every collection. So their labels are kept in blocks, and a block whose
labels did not change is the same object as in the collection before: a rendering makes something of it once.
"""

from typing import Final

from posthouse.protocols.admin.metrics.family import Family
from posthouse.protocols.admin.metrics.samples import LabelBlock, Labels, Samples, Value

_BLOCK_ROWS: Final = 500


class Rows:
    """Of one collection."""

    __slots__ = ("labels", "values")

    def __init__(self) -> None:
        self.labels: list[Labels] = []
        self.values: list[tuple[Value, ...]] = []

    def add(self, labels: Labels, *values: Value) -> None:
        """`values` in the order of the table's families."""
        self.labels.append(labels)
        self.values.append(values)


class Table:
    """Of one kind of objects. Filled once in each collection."""

    def __init__(self, *families: Family) -> None:
        self._families = families
        self._blocks: list[LabelBlock] = []

    async def fill(self, samples: Samples, rows: Rows) -> None:
        blocks: list[LabelBlock] = []
        for first in range(0, len(rows.labels), _BLOCK_ROWS):
            end = first + _BLOCK_ROWS
            block = self._block(len(blocks), tuple(rows.labels[first:end]))
            blocks.append(block)
            columns = zip(*rows.values[first:end], strict=True)
            for family, values in zip(self._families, columns, strict=True):
                samples.add_block(family, block, values)
            await samples.turns.next()
        self._blocks = blocks

    def _block(self, number: int, labels: tuple[Labels, ...]) -> LabelBlock:
        if number < len(self._blocks) and self._blocks[number].labels == labels:
            return self._blocks[number]
        return LabelBlock(labels)
