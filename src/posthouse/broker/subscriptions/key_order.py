"""Order by key in a subscription: while a record with a key is leased, no other record of its partition with
that key is given to anybody. Records of other keys are. One that was leased and is not settled comes before
those behind it, also when nobody holds it just now.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.model.ids import PartitionId

_FEW_KEYS: Final = 64


class KeyOrder:
    """Of one subscription; owned by the event loop. Like leases it is in memory only."""

    def __init__(self) -> None:
        self._leased: dict[PartitionId, dict[bytes, list[int]]] = {}
        """Offsets by key; some of them may not be leased any more."""
        self._tidy_at: dict[PartitionId, int] = {}
        """So many keys of the partition are looked through next."""

    def __len__(self) -> int:
        return sum(map(len, self._leased.values()))

    def is_held(self, partition: PartitionId, subscribed: SubscribedPartition, key: bytes) -> bool:
        return any(subscribed.holder(each) is not None for each in self._open(partition, subscribed, key))

    def must_wait(
        self,
        partition: PartitionId,
        subscribed: SubscribedPartition,
        key: bytes,
        offset: int,
        taken: set[int],
    ) -> bool:
        """Whether the record may not be given to a member together with those that it takes already: one of
        the key is leased, or has come back since the member looked and comes first."""
        return any(
            subscribed.holder(each) is not None or (each < offset and each not in taken)
            for each in self._open(partition, subscribed, key)
        )

    def _open(self, partition: PartitionId, subscribed: SubscribedPartition, key: bytes) -> list[int]:
        """Those that are not settled; keys without any are forgotten."""
        keys = self._leased.get(partition)
        if keys is None or (offsets := keys.get(key)) is None:
            return []
        left = [offset for offset in dict.fromkeys(offsets) if not subscribed.progress.is_settled(offset)]
        if left:
            keys[key] = left
        else:
            del keys[key]
        return left

    def lease(self, partition: PartitionId, offsets: Iterable[int], keys: Mapping[int, bytes]) -> None:
        """`keys` has the key of each offset."""
        leased = self._leased.setdefault(partition, {})
        for offset in offsets:
            leased.setdefault(keys[offset], []).append(offset)

    def tidy(self, partition: PartitionId, subscribed: SubscribedPartition) -> None:
        """Forget keys that nobody holds: those that never come again would stay. Called with every lease, and
        looks only once there are twice as many keys as after the last time."""
        keys = self._leased.get(partition)
        if keys is None or len(keys) < self._tidy_at.get(partition, _FEW_KEYS):
            return
        for key in list(keys):
            self.is_held(partition, subscribed, key)
        if keys:
            self._tidy_at[partition] = max(2 * len(keys), _FEW_KEYS)
        else:
            del self._leased[partition]
            self._tidy_at.pop(partition, None)
