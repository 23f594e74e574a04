"""The port to an object store: immutable objects by key, written once, read in ranges, listed, deleted."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from posthouse.model.errors import DataDamaged, Unavailable

Buffer: TypeAlias = bytes | bytearray | memoryview

Sign: TypeAlias = Callable[[Sequence[str], float], Awaitable[list[str]]]
"""Keys and seconds → addresses at which anyone can get the objects for that time. Raises ObjectsAway."""

_TIMED_BYTES = 16 * 1024 * 1024

_KEY = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*(/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*")


class ObjectsAway(Unavailable):
    """The object store does not answer, or is overloaded. Whether the last call counted is not known."""


class ObjectsRefused(ObjectsAway):
    """The object store answers, but not to this broker: credentials, permissions or bucket are wrong."""


class ObjectMissing(DataDamaged):
    """An object that should be there is not."""


class ObjectDamaged(DataDamaged):
    """An object has fewer bytes than were written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    key: str
    size: int
    modified_ms: int
    """When it was written, by the store's clock."""


class ObjectStore(Protocol):
    """Every call ends within the store's timeout, with an ObjectsAway if the store does not answer.

    The timeout is in seconds, once for each 16 MiB that are put or read.

    A key has one or more segments with a slash between them; a segment has letters, digits, `.`, `_`, `=` and
    `-`, and does not begin with a dot. No key is a whole number of leading segments of another.
    """

    @property
    def name(self) -> str:
        """The address for people, without secrets."""

    @property
    def sign(self) -> Sign | None:
        """Makes signed addresses; None if the store has none."""

    async def put(self, key: str, data: Buffer) -> None:
        """Store an object. It is durable when this returns.

        Each key is used for one content only: a caller may repeat a put that failed, with the same bytes.
        The bytes must not change any more, even if this fails: the store may still be writing them.
        """

    async def read(self, key: str, start: int, size: int) -> bytes | memoryview:
        """Exactly `size` bytes from `start`. Raises ObjectMissing, or ObjectDamaged if there are fewer."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; a missing one is no error. After an error any of them may be deleted."""

    def list(self, prefix: str) -> AsyncIterator[StoredObject]:
        """All objects whose key begins with the segments of `prefix`, in no particular order.

        An empty prefix means all. Objects that are written or deleted meanwhile may be in it or not. The
        timeout holds for each page of the listing.
        """

    async def check(self) -> None:
        """Try a put, a read, a listing and a delete. Raises ObjectsAway, which says what to do."""

    async def close(self) -> None:
        """Release threads and connections. No call may follow."""


def seconds_for(size: int, timeout: float) -> float:
    """The limit of a call that puts or reads `size` bytes."""
    return timeout * (1 + size // _TIMED_BYTES)


def check_key(key: str) -> None:
    """Raise ValueError if `key` is none: no key can lead out of the place of the store."""
    if _KEY.fullmatch(key) is None:
        raise ValueError(f"{key!r} is not a key of an object")


def check_prefix(prefix: str) -> None:
    if prefix:
        check_key(prefix)
