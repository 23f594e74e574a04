"""Receipts: what a client settles a message with that it has taken. They say all that is needed to find the
lease, so there is no table of them.

    partition.generation.offset.deliveries
"""

from typing import Final, NamedTuple

from posthouse.model.errors import BadRequest

_PARTS: Final = 4
_MOST: Final = (1 << 63) - 1
_DIGITS: Final = 19


class Receipt(NamedTuple):
    partition: int
    generation: int
    """Of the group's progress there: what was taken before a reset or a restart cannot be settled."""
    offset: int
    deliveries: int
    """Of this message, with the one that the receipt is for: an earlier delivery cannot be settled."""

    def encode(self) -> str:
        return ".".join(map(str, self))


def decode_receipt(text: str) -> Receipt:
    """Raises BadRequest."""
    parts = text.split(".", _PARTS)
    numbers = [int(each) for each in parts if each.isascii() and each.isdecimal() and len(each) <= _DIGITS]
    if len(parts) != _PARTS or len(numbers) != _PARTS or max(numbers) > _MOST:
        raise BadRequest(f"{text[:80]!r} is no receipt of this broker")
    return Receipt(*numbers)
