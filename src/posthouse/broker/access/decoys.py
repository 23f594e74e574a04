"""Decoy verifiers for users that do not exist, so that a login does not reveal which users exist.

Before a client proves its password, the broker sends it a salt and a number of iterations. Their *shape* is
the length of the salt and the number of iterations. Users created by different programs have different
shapes. An unknown name gets one of the existing shapes, and always the same one, also after a restart.
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
        """The key from which all decoys are derived."""
        self._counts: Counter[Shape] = Counter()
        self._shapes: tuple[Shape, ...] = (_DEFAULT,)

    def replace(self, old: Iterable[Verifier], new: Iterable[Verifier]) -> None:
        """Count the shapes of a user's new verifiers instead of the old ones."""
        self._counts.subtract(_shape(each) for each in old)
        self._counts.update(_shape(each) for each in new)
        self._counts = +self._counts
        common = (shape for shape, _ in self._counts.most_common(_MOST_SHAPES))
        self._shapes = tuple(dict.fromkeys((_DEFAULT, *common)))

    def verifier(self, name: str, mechanism: Mechanism) -> Verifier:
        """A verifier that no password matches."""
        whose = f"{mechanism} {name}"
        # Rendezvous hashing: a new shape changes the decoys of few names only.
        shape = max(self._shapes, key=lambda it: self._random(f"{it.iterations} {it.salt_bytes} {whose}"))
        blocks = range(shape.salt_bytes // _DIGEST_BYTES + 1)
        salt = b"".join(self._random(f"salt {block} {whose}") for block in blocks)[: shape.salt_bytes]
        nothing = bytes(mechanism.key_bytes)
        return Verifier(mechanism, salt, shape.iterations, nothing, nothing)

    def _random(self, text: str) -> bytes:
        return hmac.digest(self.key, text.encode(errors="surrogatepass"), "sha256")


def _shape(verifier: Verifier) -> Shape:
    return Shape(verifier.iterations, len(verifier.salt))
