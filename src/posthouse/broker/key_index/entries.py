"""What the index knows of a range of offsets: for each name of a record its hash, offset and time.

Three columns of 32 bits: hashes, offsets as their distance to the first one, and seconds since 1970. Times
that do not fit are the nearest that does, so those of a query have to be cut likewise.
"""

from array import array
from collections.abc import Sequence
from typing import Final

MOST_DELTA: Final = (1 << 32) - 1
_MOST_SECONDS: Final = (1 << 32) - 1
_SIZE: Final = 4


def seconds_of(timestamp_ms: int) -> int:
    return min(max(timestamp_ms // 1000, 0), _MOST_SECONDS)


class Entries:
    """Those of offsets from `first` to before `end`, in their order. Owned by one thread at a time."""

    __slots__ = ("deltas", "end", "first", "hashes", "last_crc", "may_change", "seconds")

    def __init__(self, first: int) -> None:
        self.first = first
        self.end = first
        self.last_crc = 0
        """The checksum of the batch in which the range ends: tells whether the log still has it there."""
        self.may_change = False
        """Whether some of the records were acknowledged before they were on disk (durability=os): a power cut
        may bring back others in their place."""
        self.hashes: array[int] = array("I")
        self.deltas: array[int] = array("I")
        self.seconds: array[int] = array("I")

    def __len__(self) -> int:
        return len(self.hashes)

    def add(self, hash: int, offset: int, seconds: int) -> None:
        self.hashes.append(hash)
        self.deltas.append(offset - self.first)
        self.seconds.append(seconds)

    def extend(self, following: "Entries") -> None:
        """`following` begins where this ends."""
        assert following.first == self.end
        distance = following.first - self.first
        self.hashes.extend(following.hashes)
        self.deltas.extend(array("I", [delta + distance for delta in following.deltas]))
        self.seconds.extend(following.seconds)
        self.end = following.end
        self.last_crc = following.last_crc
        self.may_change |= following.may_change

    def find(self, hash: int, earliest: int, latest: int) -> Sequence[int]:
        """Rising offsets of records that may have the name, with a second from `earliest` to `latest`."""
        # A search in bytes takes a tenth of the time of array.index.
        data, wanted = self.hashes.tobytes(), array("I", [hash]).tobytes()
        found: list[int] = []
        at = data.find(wanted)
        while at >= 0:
            number, rest = divmod(at, _SIZE)
            if not rest and earliest <= self.seconds[number] <= latest:
                found.append(self.first + self.deltas[number])
            at = data.find(wanted, at + _SIZE - rest)
        return found
