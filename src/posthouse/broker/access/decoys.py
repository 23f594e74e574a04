"""Verifiers of users who do not exist, so that a login does not tell who does.

What a client is told before it proves anything, the salt and the number of iterations, has a *shape*: how
long the one is and how large the other. Users that different programs made have different shapes. A name
without a user gets one of the shapes that there are, and always the same, also after a restart.
"""

import hmac
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from posthouse.broker.access.scram import Verifier
from posthouse.model.scram import DEFAULT_ITERATIONS, SALT_BYTES, Mechanism

_MOST_SHAPES = 32
_DIGEST_BYTES = 32


class Shape(NamedTuple):
    iterations: int
    salt_bytes: int


_DEFAULT = Shape(DEFAULT_ITERATIONS, SALT_BYTES)


class Decoys:
    """Owned by the event loop."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        """From which everything here follows."""
        self._counts: Counter[Shape] = Counter()
        self._shapes: tuple[Shape, ...] = (_DEFAULT,)

    def replace(self, old: Iterable[Verifier], new: Iterable[Verifier]) -> None:
        """A user has the new ones, and had the old ones."""
        self._counts.subtract(_shape(each) for each in old)
        self._counts.update(_shape(each) for each in new)
        self._counts = +self._counts
        common = (shape for shape, _ in self._counts.most_common(_MOST_SHAPES))
        self._shapes = tuple(dict.fromkeys((_DEFAULT, *common)))

    def verifier(self, name: str, mechanism: Mechanism) -> Verifier:
        """One that no password fits."""
        whose = f"{mechanism} {name}"
        # Whichever the name and the shape make the greatest: few names change theirs with a new shape.
        shape = max(self._shapes, key=lambda it: self._random(f"{it.iterations} {it.salt_bytes} {whose}"))
        blocks = range(shape.salt_bytes // _DIGEST_BYTES + 1)
        salt = b"".join(self._random(f"salt {block} {whose}") for block in blocks)[: shape.salt_bytes]
        nothing = bytes(mechanism.key_bytes)
        return Verifier(mechanism, salt, shape.iterations, nothing, nothing)

    def _random(self, text: str) -> bytes:
        return hmac.digest(self.key, text.encode(errors="surrogatepass"), "sha256")


def _shape(verifier: Verifier) -> Shape:
    return Shape(verifier.iterations, len(verifier.salt))
