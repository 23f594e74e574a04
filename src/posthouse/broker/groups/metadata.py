"""Decoding of the metadata that members of a classic group exchange.

The bytes belong to the members. A protocol that knows their layout can pass in a reader; without one, or with
another layout, they stay opaque.
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
    """The partitions that the member keeps reading during a rebalance."""


class MemberMetadata(Protocol):
    def subscription(self, protocol_type: str, metadata: bytes) -> MemberSubscription | None:
        """The subscription of a member; None if it cannot be decoded."""

    def assignment(self, data: bytes) -> frozenset[NamedPartition]:
        """The partitions that a leader assigned to a member; empty if they cannot be decoded."""

    def encoded_assignment(self, partitions: Iterable[NamedPartition]) -> bytes: ...


class OpaqueMetadata:
    def subscription(self, protocol_type: str, metadata: bytes) -> MemberSubscription | None:
        return None

    def assignment(self, data: bytes) -> frozenset[NamedPartition]:
        return frozenset()

    def encoded_assignment(self, partitions: Iterable[NamedPartition]) -> bytes:
        return b""


OPAQUE = OpaqueMetadata()
