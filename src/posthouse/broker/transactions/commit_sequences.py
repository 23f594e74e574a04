"""The highest sequence number that was committed under each name.

A job that may repeat its commits (a streaming query its epochs) numbers them. The number becomes durable in
the same step as the work, so that a repetition is detected whatever crashed in between. There is one small
row per name in `Space.FENCES`; it never expires, because the broker cannot know that a query has ended.

    key    name in UTF-8
    value  version u8 (1) | sequence i64, big-endian
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from struct import Struct

from posthouse.model.errors import ConcurrentTransaction, DataDamaged
from posthouse.model.scopes import Scope, scope_of_job
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

VERSION = 1
_VALUE = Struct(">Bq")


class CommitSequences:
    """Owned by the event loop. Holds only durable values."""

    def __init__(self) -> None:
        self._sequences: dict[str, int] = {}
        self._held: set[str] = set()

    def load(self, stored: Mapping[bytes, bytes]) -> None:
        """Values of `Space.FENCES`."""
        for key, value in stored.items():
            version, sequence = _VALUE.unpack(value)
            if version != VERSION:
                raise DataDamaged(f"the commit sequence {key!r} is stored in a form that is not known here")
            self._sequences[key.decode()] = sequence

    def unload(self, scope: Scope) -> None:
        """Forget those of the scope: another broker coordinates them."""
        for name in self.names():
            if scope_of_job(name) == scope:
                del self._sequences[name]

    def names(self) -> list[str]:
        return list(self._sequences)

    def sequence(self, name: str) -> int | None:
        return self._sequences.get(name)

    def has_passed(self, name: str, sequence: int) -> bool:
        known = self._sequences.get(name)
        return known is not None and sequence <= known

    @staticmethod
    def put(name: str, sequence: int) -> Put:
        return Put(Space.FENCES, name.encode(), _VALUE.pack(VERSION, sequence))

    def passed(self, name: str, sequence: int) -> None:
        """The result of `put` is durable."""
        self._sequences[name] = sequence

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Serialize commits of a name: two commits of the same number must not both succeed."""
        if name in self._held:
            raise ConcurrentTransaction(f"{name!r} is committing; try again")
        self._held.add(name)
        try:
            yield
        finally:
            self._held.discard(name)
