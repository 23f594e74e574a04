"""What the broker may learn from the bytes that members of a classic group carry for each other.

The bytes are the members' own. A protocol that knows their layout can pass in a reader; without one, or
for members that use another layout, they stay opaque.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NamedPartition:
    topic: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    topics: frozenset[str]
    owned: frozenset[NamedPartition] = frozenset()
    """What the member goes on reading while the partitions are shared out anew."""


class MemberMetadata(Protocol):
    def subscription(self, protocol_type: str, metadata: bytes) -> MemberSubscription | None:
        """What a member asks for; None where that cannot be told."""

    def assignment(self, data: bytes) -> frozenset[NamedPartition]:
        """What a leader gave to a member; nothing where that cannot be told."""

    def encoded_assignment(self, partitions: Iterable[NamedPartition]) -> bytes: ...


class OpaqueMetadata:
    def subscription(self, protocol_type: str, metadata: bytes) -> MemberSubscription | None:
        return None

    def assignment(self, data: bytes) -> frozenset[NamedPartition]:
        return frozenset()

    def encoded_assignment(self, partitions: Iterable[NamedPartition]) -> bytes:
        return b""


OPAQUE = OpaqueMetadata()
