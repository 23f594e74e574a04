"""The stored state of subscriptions, besides their progress.

Entries in `Space.SHARE_GROUPS`:

    key    topic id 16 bytes | group in UTF-8, to the end        value  version u8 = 1

An entry with zeroes for the topic is the subscription itself; the others are the topics in which it has
progress in. The progress itself is in `Space.SHARE_PROGRESS`, see `broker.progress`: its queue id is a hash
of the group and the topic (and of the number of 65,536 partitions in front, for the few topics that have
more), its lane the partition.
"""

import struct
from collections.abc import Iterator, Mapping
from hashlib import blake2b

from posthouse.broker.progress.progress import Progress
from posthouse.model.errors import DataDamaged
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

_VERSION = b"\x01"
_NO_TOPIC = TopicId(bytes(16))
_LANE_BITS = 16
_LANE_MASK = (1 << _LANE_BITS) - 1
_HIGH = struct.Struct(">I")


def put_group(group: GroupId, topic: TopicId = _NO_TOPIC) -> Put:
    return Put(Space.SHARE_GROUPS, topic + group.encode(), _VERSION)


def drop_group(group: GroupId, topic: TopicId = _NO_TOPIC) -> Put:
    return Put(Space.SHARE_GROUPS, topic + group.encode(), None)


def stored_groups(state: Mapping[bytes, bytes]) -> Iterator[tuple[GroupId, TopicId | None]]:
    """Groups with their topics; None for the topic: the group itself."""
    for key, value in state.items():
        if value != _VERSION:
            raise DataDamaged(f"a subscription of the unknown version {value.hex()}")
        topic = TopicId(key[:16])
        yield GroupId(key[16:].decode()), None if topic == _NO_TOPIC else topic


def lane_of(group: GroupId, partition: PartitionId) -> tuple[bytes, int]:
    """The queue id and the lane under which a partition's progress is stored."""
    high = _HIGH.pack(partition.index >> _LANE_BITS)
    queue = blake2b(partition.topic + high + group.encode(), digest_size=16).digest()
    return queue, partition.index & _LANE_MASK


def new_progress(group: GroupId, partition: PartitionId, floor: int) -> Progress:
    queue, lane = lane_of(group, partition)
    progress = Progress(queue, lane, floor, space=Space.SHARE_PROGRESS)
    progress.is_changed = True
    return progress
