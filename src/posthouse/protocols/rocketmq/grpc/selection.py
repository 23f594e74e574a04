"""The messages of one receive call: those that match the member's filter, of an ordered group none behind a
message of the same message group that somebody holds.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from posthouse.broker.filters.filter import EVERYTHING, Filter
from posthouse.broker.subscriptions.batches import Found
from posthouse.broker.subscriptions.key_order import KeyOrder
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.broker.subscriptions.selection import Selected
from posthouse.model.ids import PartitionId
from posthouse.protocols.rocketmq.codec.codes import SHARDING_KEY
from posthouse.protocols.rocketmq.messages import Message, message_of
from posthouse.records.batch import iter_headers
from posthouse.records.raw import iter_raw
from posthouse.records.record import body_of

_MOST_BYTES: Final = 4 * 1024 * 1024
"""Of bodies in one answer; more only if one message has more."""

OtherFilters = Callable[[], Iterable[Filter]]


class SelectedMessage(NamedTuple):
    message: Message
    stored_at: int


class MessageSelection:
    """Of one call; decodes each message once."""

    def __init__(
        self, name: Hashable, wanted: Filter, others: OtherFilters, most: int, order: KeyOrder | None
    ) -> None:
        """`others` are the filters of all members, this one's among them. `order` is that of the group, if it
        is an ordered one."""
        self.name = name
        self._wanted = wanted
        self._others = others
        self.most = most
        self._order = order
        self._bytes = 0
        self._keys: dict[tuple[PartitionId, int], bytes] = {}
        self._passed: dict[tuple[PartitionId, bytes], deque[int]] = {}
        """Of an ordered group, by message group: what had to wait. Those behind wait, too, though what they
        wait for may be settled while storage is read."""
        self.messages: dict[tuple[PartitionId, int], SelectedMessage] = {}

    def begin(self) -> None:
        self._bytes = 0
        self._keys.clear()
        self.messages.clear()

    def select(self, partition: PartitionId, subscribed: SubscribedPartition, found: Found) -> Selected:
        ready = set(found.offsets)
        first, end = found.offsets[0], found.offsets[-1] + 1
        taken: list[int] = []
        unwanted: list[int] = []
        first_wanted: int | None = None
        others = None
        takes_all = self._wanted is EVERYTHING
        [(_, header)] = iter_headers(found.data)
        for record in iter_raw(body_of(found.data, header), header, first, end):
            offset = record.offset
            if offset not in ready:
                continue
            message = message_of(record)
            if not takes_all and not self._wanted.matches(message.properties, message.tag):
                if others is None:
                    others = list(self._others())
                if not any(each.matches(message.properties, message.tag) for each in others):
                    unwanted.append(offset)
                continue
            if first_wanted is None:
                first_wanted = offset
            if len(self.messages) >= self.most or self._bytes >= _MOST_BYTES:
                break
            if self._order is not None:
                key = message.properties.get(SHARDING_KEY, "").encode()
                if self._must_wait(self._order, partition, subscribed, key, offset):
                    self._passed.setdefault((partition, key), deque()).append(offset)
                    continue
                self._keys[partition, offset] = key
            self.messages[partition, offset] = SelectedMessage(message, record.timestamp)
            self._bytes += len(message.body)
            taken.append(offset)
        return Selected(taken, unwanted, first_wanted)

    def confirm(
        self, partition: PartitionId, subscribed: SubscribedPartition, offsets: list[int]
    ) -> list[int]:
        order = self._order
        if order is None:
            return offsets
        confirmed: set[int] = set()
        for offset in offsets:
            key = self._keys[partition, offset]
            if not order.must_wait(partition, subscribed, key, offset, confirmed):
                confirmed.add(offset)
        return sorted(confirmed)

    def _must_wait(
        self,
        order: KeyOrder,
        partition: PartitionId,
        subscribed: SubscribedPartition,
        key: bytes,
        offset: int,
    ) -> bool:
        passed = self._passed.get((partition, key))
        while passed:
            is_taken = (partition, passed[0]) in self.messages
            if passed[0] < offset and not is_taken and not subscribed.progress.is_settled(passed[0]):
                return True
            passed.popleft()
        taken = {each for owner, each in self.messages if owner == partition}
        return order.must_wait(partition, subscribed, key, offset, taken)

    def leased(self, partition: PartitionId, subscribed: SubscribedPartition, offsets: list[int]) -> None:
        if self._order is not None:
            self._order.tidy(partition, subscribed)
            keys = {offset: self._keys[partition, offset] for offset in offsets}
            self._order.lease(partition, offsets, keys)

    def size(self, partition: PartitionId, offsets: Sequence[int]) -> int:
        return sum(len(self.messages[partition, offset].message.body) for offset in offsets)
