"""A half message as one record of their log.

The record's timestamp is the time at which the message was prepared, its headers are those of the message. It
has no key. Its value, numbers big-endian:

    offset  size  field
         0     1  version        1
         1     1  flags          1 the message has a key
         2     4  partition
         6     4  first check    seconds after which the producers are asked for the first time
        10     4  size of the group of producers
        14     4  size of the topic's name
        18     4  size of the key
        22     …  group and topic in UTF-8, key
         …     …  the message's value, to the end
"""

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from posthouse.model.errors import DataDamaged
from posthouse.records.raw import RawRecord

_VERSION = 1
_HAS_KEY = 1
_HEAD = Struct(">BBIIIII")


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfMessage:
    group: str
    """The producers that are asked."""
    topic: str
    partition: int
    key: bytes | None
    value: bytes
    headers: bytes
    """Encoded as in a batch."""
    prepared_ms: int
    first_check_s: int

    def encode(self) -> bytes:
        """The value of its record."""
        group, topic, key = self.group.encode(), self.topic.encode(), self.key or b""
        head = _HEAD.pack(
            _VERSION,
            _HAS_KEY if self.key is not None else 0,
            self.partition,
            self.first_check_s,
            len(group),
            len(topic),
            len(key),
        )
        return b"".join((head, group, topic, key, self.value))

    @property
    def size(self) -> int:
        return len(self.value) + len(self.headers) + len(self.key or b"")


def decode(record: RawRecord) -> HalfMessage:
    data = record.value
    try:
        version, flags, partition, first_check_s, group_size, topic_size, key_size = _HEAD.unpack_from(data)
        if version != _VERSION:
            raise DataDamaged(f"half message {record.offset} has the unknown version {version}")
        group_end = _HEAD.size + group_size
        topic_end = group_end + topic_size
        key_end = topic_end + key_size
        return HalfMessage(
            group=data[_HEAD.size : group_end].decode(),
            topic=data[group_end:topic_end].decode(),
            partition=partition,
            key=data[topic_end:key_end] if flags & _HAS_KEY else None,
            value=data[key_end:],
            headers=record.headers,
            prepared_ms=record.timestamp,
            first_check_s=first_check_s,
        )
    except (StructError, UnicodeDecodeError) as error:
        raise DataDamaged(f"half message {record.offset} cannot be read: {error}") from error
