"""What was decided of half messages: a bit for each, and another one for what it was.

Storage has one entry for each block of 1,024 messages in `Space.HALF_MESSAGES`, numbers big-endian:

    key    number of the block u64
    value  version u8 = 1 | decided 128 bytes | committed 128 bytes

Message N of a block is bit N % 8 of byte N / 8.
An entry is written with the commit that makes a decision effective. The last blocks are kept after all of
their messages are decided: a decision that comes again is told what was decided.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from struct import error as StructError

from posthouse.model.errors import DataDamaged
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

BLOCK = 1024
KEPT = 64
"""Blocks that are kept below the first undecided message."""
_VERSION = 1
_KEY = Struct(">Q")
_VALUE = Struct(f">B{BLOCK // 8}s{BLOCK // 8}s")


class Decisions:
    """In memory: what is durable."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[int, int]] = {}
        """Decided and committed, as numbers: bit N is message N."""

    def load(self, state: Mapping[bytes, bytes]) -> None:
        for key, value in state.items():
            try:
                [number] = _KEY.unpack(key)
                version, decided, committed = _VALUE.unpack(value)
            except StructError as error:
                raise DataDamaged(f"decisions of half messages cannot be read: {error}") from error
            if version != _VERSION:
                raise DataDamaged(f"decisions of half messages have the unknown version {version}")
            self._blocks[number] = int.from_bytes(decided, "little"), int.from_bytes(committed, "little")

    def outcome(self, id: int) -> bool | None:
        """Whether it was committed; None if it is not decided, or nothing is known of it any more."""
        decided, committed = self._blocks.get(id // BLOCK, (0, 0))
        bit = 1 << id % BLOCK
        return bool(committed & bit) if decided & bit else None

    def puts(self, outcomes: Mapping[int, bool]) -> list[Put]:
        """The operations that store these decisions, too. `apply` them once they are durable."""
        return [
            Put(Space.HALF_MESSAGES, _KEY.pack(number), _encoded(block))
            for number, block in self._with(outcomes).items()
        ]

    def apply(self, outcomes: Mapping[int, bool]) -> None:
        self._blocks |= self._with(outcomes)

    def _with(self, outcomes: Mapping[int, bool]) -> dict[int, tuple[int, int]]:
        blocks: dict[int, tuple[int, int]] = {}
        for id, is_commit in outcomes.items():
            number, bit = id // BLOCK, 1 << id % BLOCK
            decided, committed = blocks.get(number) or self._blocks.get(number, (0, 0))
            blocks[number] = decided | bit, committed | bit if is_commit else committed
        return blocks

    def outdated(self, floor: int) -> list[int]:
        """Blocks that need not be kept any more: all below `floor` is decided."""
        oldest = floor // BLOCK - KEPT
        return [number for number in self._blocks if number < oldest]

    @staticmethod
    def removals(numbers: Iterable[int]) -> list[Put]:
        return [Put(Space.HALF_MESSAGES, _KEY.pack(number), None) for number in numbers]

    def forget(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._blocks.pop(number, None)


def _encoded(block: tuple[int, int]) -> bytes:
    decided, committed = (bits.to_bytes(BLOCK // 8, "little") for bits in block)
    return _VALUE.pack(_VERSION, decided, committed)
