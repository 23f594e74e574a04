"""Receipt handles: what a client acknowledges a delivery with. They say all that is needed to find the
lease: there is no table of them.

    version 2 · partition · generation · offset · deliveries · member, separated by dots; the member, who
    holds the lease, is percent-encoded
"""

from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from posthouse.model.errors import BadRequest
from posthouse.model.ids import MemberId

_VERSION: Final = "2"
_PARTS: Final = 6
_MOST: Final = (1 << 63) - 1
_LONGEST: Final = 2048


class Receipt(NamedTuple):
    partition: int
    generation: int
    """Of the group's progress there: what was leased before a reset cannot be acknowledged any more."""
    offset: int
    deliveries: int
    """Of this record, with the one that the receipt is for: an earlier delivery cannot be acknowledged any
    more."""
    member: MemberId

    def encode(self) -> str:
        numbers = f"{self.partition}.{self.generation}.{self.offset}.{self.deliveries}"
        return f"{_VERSION}.{numbers}.{quote(self.member, safe='')}"


def decode_receipt(handle: str) -> Receipt:
    """Raises BadRequest."""
    parts = handle.split(".", _PARTS - 1) if len(handle) <= _LONGEST else ()
    if len(parts) != _PARTS or parts[0] != _VERSION or not parts[-1]:
        raise BadRequest(f"{handle[:80]!r} is no receipt handle of this broker")
    numbers = [
        int(part) if part.isascii() and part.isdecimal() and len(part) < 20 else -1 for part in parts[1:-1]
    ]
    if not all(0 <= number <= _MOST for number in numbers):
        raise BadRequest(f"{handle[:80]!r} is no receipt handle of this broker")
    partition, generation, offset, deliveries = numbers
    return Receipt(partition, generation, offset, deliveries, MemberId(unquote(parts[-1])))
