"""The records that a webhook takes in one fetch: those that match its filter, and of an ordered webhook one
of each key, unless one of that key is on its way."""

from collections.abc import Hashable, Sequence
from typing import Final

from posthouse.broker.filters.filter import EVERYTHING, Filter
from posthouse.broker.subscriptions.batches import Found, first_unreadable
from posthouse.broker.subscriptions.key_order import KeyOrder
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.broker.subscriptions.selection import Selected
from posthouse.model.errors import BadRequest, CorruptBatch
from posthouse.model.ids import PartitionId
from posthouse.records.batch import BatchHeader, iter_headers
from posthouse.records.header_section import decode_section
from posthouse.records.raw import NO_HEADERS, RawRecord, iter_raw
from posthouse.records.record import body_of
from posthouse.webhooks.delivery import Header

_MOST_BYTES: Final = 1024 * 1024
"""Of values in one fetch; more only if one message has more."""
_TAGS: Final = "TAGS"


class SelectedRecord:
    """With its headers, which were decoded for the filter."""

    __slots__ = ("headers", "record", "unreadable")

    def __init__(self, record: RawRecord, unreadable: str | None = None) -> None:
        """`unreadable`: why it, and the rest of its batch, cannot be decoded."""
        self.record = record
        self.unreadable = unreadable
        try:
            self.headers: Sequence[Header] = decode_section(record.headers)
        except CorruptBatch:
            self.headers = ()  # as their producer wrote them; the value is pushed all the same

    def matches(self, wanted: Filter) -> bool:
        properties: dict[str, str] = {}
        for name, value in self.headers:
            try:
                properties[name.decode()] = (value or b"").decode()
            except UnicodeDecodeError:
                continue  # no text, and nothing that a condition can name
        return wanted.matches(properties, properties.get(_TAGS))


class WebhookSelection:
    """Of one fetch."""

    def __init__(self, name: Hashable, wanted: Filter, most: int, order: KeyOrder | None) -> None:
        self.name = name
        self._wanted = wanted
        self._most = most
        self._order = order
        self._bytes = 0
        self._keys: set[tuple[PartitionId, bytes]] = set()
        """Of which a record was seen in this pass: those behind it wait, also if it is settled meanwhile."""
        self.records: dict[tuple[PartitionId, int], SelectedRecord] = {}

    def begin(self) -> None:
        self._bytes = 0
        self._keys.clear()
        self.records.clear()

    def select(self, partition: PartitionId, subscribed: SubscribedPartition, found: Found) -> Selected:
        ready = set(found.offsets)
        first, end = found.offsets[0], found.offsets[-1] + 1
        taken: list[int] = []
        unwanted: list[int] = []
        first_wanted: int | None = None
        takes_all = self._wanted is EVERYTHING
        [(_, header)] = iter_headers(found.data)
        try:
            for record in iter_raw(body_of(found.data, header), header, first, end):
                offset = record.offset
                if offset not in ready:
                    continue
                selected = SelectedRecord(record)
                if not takes_all and not selected.matches(self._wanted):
                    unwanted.append(offset)
                    continue
                if first_wanted is None:
                    first_wanted = offset
                if len(self.records) >= self._most or self._bytes >= _MOST_BYTES:
                    break
                if self._order is not None and self._must_wait(self._order, partition, subscribed, record):
                    continue
                self.records[partition, offset] = selected
                self._bytes += len(record.value)
                taken.append(offset)
        except BadRequest as error:
            bad = first_unreadable(found.data, header)
            assert bad is not None
            unwanted += [offset for offset in found.offsets if offset > bad]
            if bad in ready:  # otherwise its batch is a dead letter already, or deleted in part
                self.records[partition, bad] = _unreadable(bad, header, error)
                taken.append(bad)
                first_wanted = bad if first_wanted is None else first_wanted
        return Selected(taken, unwanted, first_wanted)

    def _must_wait(
        self, order: KeyOrder, partition: PartitionId, subscribed: SubscribedPartition, record: RawRecord
    ) -> bool:
        """Records without a key never wait."""
        key = record.key
        if not key:
            return False
        if (partition, key) in self._keys:
            return True
        self._keys.add((partition, key))
        return order.must_wait(partition, subscribed, key, record.offset, set())

    def confirm(
        self, partition: PartitionId, subscribed: SubscribedPartition, offsets: list[int]
    ) -> list[int]:
        order = self._order
        if order is None:
            return offsets
        return [
            offset
            for offset in offsets
            if not (key := self._key(partition, offset))
            or not order.must_wait(partition, subscribed, key, offset, set())
        ]

    def leased(self, partition: PartitionId, subscribed: SubscribedPartition, offsets: list[int]) -> None:
        if self._order is not None:
            self._order.tidy(partition, subscribed)
            keys = {offset: key for offset in offsets if (key := self._key(partition, offset))}
            self._order.lease(partition, keys, keys)

    def _key(self, partition: PartitionId, offset: int) -> bytes | None:
        return self.records[partition, offset].record.key

    def size(self, partition: PartitionId, offsets: Sequence[int]) -> int:
        return sum(len(self.records[partition, offset].record.value) for offset in offsets)


def _unreadable(offset: int, header: BatchHeader, error: BadRequest) -> SelectedRecord:
    """Stands for the rest of its batch, and is to be a dead letter."""
    return SelectedRecord(RawRecord(offset, header.max_timestamp, None, b"", NO_HEADERS), str(error))
