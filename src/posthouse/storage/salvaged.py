"""Where recovery has kept batches that no commit proves, for the broker: what else their commits changed is
lost, or was never stored.

Recovery has one entry for each such partition in `Space.SALVAGED`, numbers big-endian:

    key    topic id 16 bytes | partition u32
    value  offset u64 of the first such batch

The broker removes the entries when it has made up for what is missing.
"""

from struct import Struct

from posthouse.model.ids import TOPIC_ID_BYTES, PartitionId, TopicId

_INDEX = Struct(">I")
_OFFSET = Struct(">Q")


def salvaged_key(partition: PartitionId) -> bytes:
    return partition.topic + _INDEX.pack(partition.index)


def salvaged_partition(key: bytes) -> PartitionId:
    [index] = _INDEX.unpack_from(key, TOPIC_ID_BYTES)
    return PartitionId(TopicId(key[:TOPIC_ID_BYTES]), index)


def encode_offset(offset: int) -> bytes:
    return _OFFSET.pack(offset)


def decode_offset(value: bytes) -> int:
    [offset] = _OFFSET.unpack(value)
    return int(offset)
