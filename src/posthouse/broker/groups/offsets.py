"""Committed offsets of groups, in memory and in storage.

Storage has one entry per group and partition in `Space.OFFSETS`. Numbers are big-endian.

    key    topic id 16 bytes | partition u32 | group in UTF-8, to the end
    value  version u8 = 1 | offset i64 | leader epoch i32 | time in ms i64 | metadata in UTF-8, to the end

The topic is named by its id: an offset never outlives its topic into another of the same name. In memory
values stay encoded and the partition part of a key is shared by all groups that use it, because a
broker may hold millions and reads few of them.

Invariant: memory holds what storage has made durable, never more. A value is replaced as a whole, so
that after a crash each partition has its old offset or its new one.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from posthouse.model.errors import DataDamaged
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.records.batch import NO_LEADER_EPOCH
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

_VERSION = 1
_KEY = struct.Struct(">16sI")
_VALUE = struct.Struct(">Bqiq")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    committed_ms: int


def _encoded(committed: CommittedOffset) -> bytes:
    fixed = _VALUE.pack(_VERSION, committed.offset, committed.leader_epoch, committed.committed_ms)
    return fixed + committed.metadata.encode()


def _decoded(value: bytes) -> CommittedOffset:
    try:
        version, offset, leader_epoch, committed_ms = _VALUE.unpack_from(value)
        metadata = value[_VALUE.size :].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise DataDamaged(f"a committed offset cannot be read: {error}") from None
    if version != _VERSION:
        raise DataDamaged(f"a committed offset of the unknown version {version}")
    return CommittedOffset(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata, committed_ms=committed_ms
    )


def _place(partition: PartitionId) -> bytes:
    return _KEY.pack(partition.topic, partition.index)


def offset_key(group: GroupId, partition: PartitionId) -> bytes:
    """The storage key of the offset."""
    return _place(partition) + group.encode()


def _partition(place: bytes) -> PartitionId:
    topic, index = _KEY.unpack(place)
    return PartitionId(TopicId(topic), index)


def topic_of(key: bytes) -> TopicId:
    """The topic that a stored offset belongs to."""
    return TopicId(key[:16])


def partition_of(key: bytes) -> PartitionId:
    return _partition(key[: _KEY.size])


def group_of(key: bytes) -> GroupId:
    """The group that a stored offset belongs to."""
    return GroupId(key[_KEY.size :].decode())


class Offsets:
    """Owned by the event loop. Changes are made in two steps, so that they can share a commit with others:
    `puts` or `removals` return operations, `apply` applies them once they are durable."""

    def __init__(self) -> None:
        self._groups: dict[GroupId, dict[bytes, bytes]] = {}
        self._places: dict[bytes, bytes] = {}

    def load(self, state: dict[bytes, bytes], topics: Set[TopicId] | None = None) -> list[Put]:
        """Add stored offsets; returns operations that remove those of topics that are not among `topics`,
        if it is given."""
        size = _KEY.size
        by_name: dict[bytes, dict[bytes, bytes]] = {}
        shared: dict[bytes, bytes | None] = {}
        leftovers: list[Put] = []
        while state:
            # Popped one by one, so that both forms are never in memory at the same time.
            key, value = state.popitem()
            place = key[:size]
            if place not in shared:
                is_known = topics is None or topic_of(place) in topics
                shared[place] = self._places.setdefault(place, place) if is_known else None
            known = shared[place]
            if known is None:
                leftovers.append(Put(Space.OFFSETS, key, None))
                continue
            name = key[size:]
            group = by_name.get(name)
            if group is None:
                group = by_name[name] = {}
            group[known] = value
        self._groups |= {GroupId(name.decode()): offsets for name, offsets in by_name.items()}
        return leftovers

    def follow(self, stored: "Offsets", groups: Iterable[GroupId], changed: Set[bytes]) -> None:
        """Take over what is stored of these groups, but for the keys that have changed here since it was
        read."""
        for group in groups:
            name = group.encode()
            known = self._groups.get(group, {})
            newer = {place: value for place, value in known.items() if place + name in changed}
            for place, value in stored._groups.get(group, {}).items():
                if place + name not in changed:
                    newer[self._places.setdefault(place, place)] = value
            if newer:
                self._groups[group] = newer
            else:
                self._groups.pop(group, None)

    def forget(self, groups: Iterable[GroupId]) -> None:
        """Another broker coordinates these groups from now on."""
        for group in groups:
            self._groups.pop(group, None)

    def __contains__(self, group: GroupId) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[GroupId]:
        return iter(self._groups)

    def get(self, group: GroupId, partition: PartitionId) -> CommittedOffset | None:
        value = self._groups.get(group, {}).get(_place(partition))
        return None if value is None else _decoded(value)

    def is_read(self, partition: PartitionId) -> bool:
        """Whether any group has an offset in the partition."""
        place = _place(partition)
        return place in self._places and any(place in offsets for offsets in self._groups.values())

    def partitions(self, group: GroupId) -> list[PartitionId]:
        return [_partition(place) for place in self._groups.get(group, ())]

    def last_commit_ms(self, group: GroupId) -> int:
        values = self._groups.get(group, {}).values()
        return max((_decoded(value).committed_ms for value in values), default=0)

    @staticmethod
    def puts(group: GroupId, offsets: Mapping[PartitionId, CommittedOffset]) -> list[Put]:
        name = group.encode()
        return [
            Put(Space.OFFSETS, _place(partition) + name, _encoded(committed))
            for partition, committed in offsets.items()
        ]

    @staticmethod
    def removals(group: GroupId, partitions: Iterable[PartitionId]) -> list[Put]:
        name = group.encode()
        return [Put(Space.OFFSETS, _place(partition) + name, None) for partition in partitions]

    def apply(self, puts: Sequence[Put]) -> None:
        """Apply the operations of `puts` and `removals` once they are durable, in commit order."""
        for put in puts:
            place, group = put.key[: _KEY.size], GroupId(put.key[_KEY.size :].decode())
            if put.value is not None:
                place = self._places.setdefault(place, place)
                self._groups.setdefault(group, {})[place] = put.value
            elif group in self._groups:
                self._groups[group].pop(place, None)
                if not self._groups[group]:
                    del self._groups[group]

    def of_topic(self, group: GroupId, topic: TopicId) -> list[PartitionId]:
        return [_partition(place) for place in self._groups.get(group, ()) if place.startswith(topic)]
