"""The bytes that Kafka consumers exchange inside a group, as far as the broker has to know them.

    subscription  version i16 | topics [string] | user data bytes | from v1: owned [partitions] | …
    assignment    version i16 | [partitions] | user data bytes
    partitions    topic string | [i32]

A string has a length i16, an array and bytes a length i32 (-1 is null). Fields that newer versions append are
ignored.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable

from posthouse.broker.groups.metadata import MemberSubscription, NamedPartition
from posthouse.protocols.kafka.codec.primitives import MAX_ELEMENTS

_PROTOCOL_TYPE = "consumer"
_FIRST_WITH_OWNED = 1
_SMALLEST_TEXT = 2
_SMALLEST_TOPIC = 6
_INDEX_SIZE = 4
_NO_USER_DATA = struct.pack(">i", -1)


class ConsumerProtocol:
    """See `posthouse.broker.groups.metadata.MemberMetadata`."""

    def subscription(self, protocol_type: str, metadata: bytes) -> MemberSubscription | None:
        if protocol_type != _PROTOCOL_TYPE:
            return None
        reader = _Reader(metadata)
        try:
            version = reader.int16()
            topics = frozenset(reader.string() for _ in range(reader.count(_SMALLEST_TEXT)))
            reader.skip_bytes()
            owned = reader.partitions() if version >= _FIRST_WITH_OWNED else frozenset()
        except (struct.error, UnicodeDecodeError):
            return None
        return MemberSubscription(topics=topics, owned=owned)

    def assignment(self, data: bytes) -> frozenset[NamedPartition]:
        reader = _Reader(data)
        try:
            reader.int16()
            return reader.partitions()
        except (struct.error, UnicodeDecodeError):
            return frozenset()

    def encoded_assignment(self, partitions: Iterable[NamedPartition]) -> bytes:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for partition in partitions:
            topics[partition.topic].append(partition.index)
        parts = [struct.pack(">hi", 0, len(topics))]
        for name, indexes in sorted(topics.items()):
            encoded = name.encode()
            parts += [struct.pack(">h", len(encoded)), encoded]
            parts.append(struct.pack(f">i{len(indexes)}i", len(indexes), *sorted(indexes)))
        return b"".join([*parts, _NO_USER_DATA])


class _Reader:
    """Raises struct.error if the bytes end too early, or declare more than they can hold."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0
        self._elements_left = MAX_ELEMENTS

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def count(self, smallest: int) -> int:
        """The number of elements that take at least `smallest` bytes each."""
        count = max(0, self.int32())
        self._elements_left -= count
        if count * smallest > len(self._data) - self._pos or self._elements_left < 0:
            raise struct.error(f"{count} elements")
        return count

    def string(self) -> str:
        size = max(0, self.int16())
        (text,) = struct.unpack_from(f">{size}s", self._data, self._pos)
        self._pos += size
        return str(text, "utf-8")

    def skip_bytes(self) -> None:
        size = max(0, self.int32())
        self._pos += size

    def partitions(self) -> frozenset[NamedPartition]:
        found = []
        for _ in range(self.count(_SMALLEST_TOPIC)):
            topic = self.string()
            found += [NamedPartition(topic, self.int32()) for _ in range(self.count(_INDEX_SIZE))]
        return frozenset(found)

    def _number(self, form: str, size: int) -> int:
        (number,) = struct.unpack_from(form, self._data, self._pos)
        self._pos += size
        return int(number)
