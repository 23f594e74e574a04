"""Referrals: committed transactions whose records queues do not have yet.

A transaction may be ended by a broker that does not know the queues. In the commit that ends it, that broker
stores a referral for each partition of it that may feed queues. The broker that serves them reads the
records, and removes the referral in the commit that refers to them: see `pending_referrals`.

Stored in `Space.REFERRALS`, big-endian; the value is empty:

    key    topic id 16 bytes | partition u32 | producer id i64 | first offset of the transaction i64
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from struct import Struct

from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

_KEY = Struct(">16sIqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Referral:
    """The records of one transaction in one partition."""

    partition: PartitionId
    producer_id: int
    first: int
    """Offset of the first record."""

    def put(self) -> Put:
        return Put(Space.REFERRALS, self._key(), b"")

    def removal(self) -> Put:
        return Put(Space.REFERRALS, self._key(), None)

    def _key(self) -> bytes:
        return _KEY.pack(self.partition.topic, self.partition.index, self.producer_id, self.first)


def stored_referral(key: bytes) -> Referral:
    topic, index, producer_id, first = _KEY.unpack(key)
    return Referral(partition=PartitionId(TopicId(topic), index), producer_id=producer_id, first=first)


class LeftReferrals:
    """Of one commit: references that other brokers will write."""

    def __init__(self, left: Collection[PartitionId], referrals: Sequence[Referral]) -> None:
        """`left` are all partitions that may feed queues, also those without records."""
        self.left = left
        self._referrals = referrals

    def operations(self) -> list[Put]:
        return [each.put() for each in self._referrals]

    def durable(self) -> None:
        """The other brokers learn of it by the new ends of the logs, or when they look next."""
