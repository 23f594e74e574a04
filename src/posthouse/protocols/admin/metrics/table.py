"""Objects that are shown by name, one row for each: its labels, and its values of several families.

The same objects are there in nearly every collection. So their labels are kept in blocks, and a block whose
labels did not change is the same object as in the collection before: a rendering makes something of it once.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from posthouse.protocols.admin.metrics.family import Family
from posthouse.protocols.admin.metrics.samples import LabelBlock, Labels, Samples, Value

Row: TypeAlias = tuple[Value, ...]

_BLOCK_ROWS: Final = 500


class Table:
    """Of one kind of objects. Filled once in each collection."""

    def __init__(self, *families: Family) -> None:
        self._families = families
        self._blocks: list[LabelBlock] = []

    async def fill(self, samples: Samples, labels: Sequence[Labels], rows: Sequence[Row]) -> None:
        """`rows` has a row of values for each of `labels`, in the order of the families."""
        blocks: list[LabelBlock] = []
        for first in range(0, len(labels), _BLOCK_ROWS):
            end = first + _BLOCK_ROWS
            block = self._block(len(blocks), tuple(labels[first:end]))
            blocks.append(block)
            for family, values in zip(self._families, zip(*rows[first:end], strict=True), strict=True):
                samples.add_block(family, block, values)
            await samples.turns.next()
        self._blocks = blocks

    def _block(self, number: int, rows: tuple[Labels, ...]) -> LabelBlock:
        if number < len(self._blocks) and self._blocks[number].rows == rows:
            return self._blocks[number]
        return LabelBlock(rows)
