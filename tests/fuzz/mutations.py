"""Damage to valid bytes, the same in every run: flips, cuts, splices, and lengths that lie."""

from collections.abc import Iterator, Sequence
from random import Random

_LIES = (
    b"\x00",
    b"\x7f",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff",
    b"\x00\x00\x00\x00",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff",
)


class Mutator:
    def __init__(
        self, samples: Sequence[bytes], dictionary: Sequence[bytes], longest: int, seed: int
    ) -> None:
        self._samples = samples
        self._words = (*_LIES, *dictionary)
        self._longest = longest
        self._random = Random(seed)

    def take(self, count: int) -> Iterator[bytes]:
        random = self._random
        for _ in range(count):
            data = bytearray(random.choice(self._samples))
            for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
                self._change(data)
            yield bytes(data[: self._longest])

    def _change(self, data: bytearray) -> None:
        random = self._random
        at = random.randrange(len(data) + 1)
        match random.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 1 if at < len(data):
                data[at] = random.randrange(256)
            case 2:
                del data[at:]
            case 3:
                del data[at : at + random.randrange(1, 9)]
            case 4:
                word = random.choice(self._words)
                data[at : at + len(word)] = word
            case 5:
                data[at:at] = random.choice(self._words)
            case _:
                other = random.choice(self._samples)
                start = random.randrange(len(other) + 1)
                data[at:] = other[start:]
