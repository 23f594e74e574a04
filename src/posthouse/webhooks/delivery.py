"""A message on its way to an endpoint, and where messages come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from posthouse.model.ids import PartitionId

Header = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Delivery:
    place: PartitionId
    """With `offset` it is the message, for its source."""
    offset: int
    topic: str
    key: bytes | None
    value: bytes
    headers: Sequence[Header]
    timestamp: int
    attempt: int
    """1 for the first."""
    unreadable: str | None = None
    """Why it, and the rest of its batch, cannot be decoded: it is not sent, but made a dead letter."""

    @property
    def id(self) -> str:
        """The same in every attempt, and in every replay."""
        return f"msg_{self.place.topic.hex()}_{self.place.index}_{self.offset}"

    def header(self, name: bytes) -> bytes | None:
        return next((value for each, value in self.headers if each == name), None)


class Source(Protocol):
    """The messages of one webhook. Nothing here waits for storage but `take`: what is not stored because that
    fails is delivered again."""

    async def take(self, most: int, seconds: float, lock_seconds: float) -> list[Delivery]:
        """Lease up to `most`; none only when none came within `seconds`. Raises PosthouseError."""

    def delivered(self, deliveries: Sequence[Delivery]) -> None: ...

    def retry(self, deliveries: Sequence[Delivery], seconds: float, *, counts: bool) -> None:
        """They come again, not before `seconds` from now."""

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """They were not sent."""

    def bury(self, delivery: Delivery, notes: Sequence[tuple[bytes, bytes]]) -> None:
        """Make it a dead letter, with these headers."""

    async def close(self) -> None:
        """When it returns, all that was said is stored, and messages of a queue do not wait any more."""
