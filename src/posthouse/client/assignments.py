"""The assignment of a member of a classic group: bytes that the group's leader wrote.

    version i16 | count i32, per topic: name (length i16, UTF-8), count i32, partitions i32 … | user data

The broker passes them on unread, so they may be anything; newer versions only append fields.
"""

from struct import Struct
from struct import error as StructError

from posthouse.client.topic_partitions import TopicPartition
from posthouse.records.batch import Readable

_INT16 = Struct(">h")
_INT32 = Struct(">i")


def decode_assignment(data: Readable) -> list[TopicPartition]:
    """The partitions in order; empty if the bytes are not a consumer's assignment."""
    view = memoryview(data)
    found = []
    try:
        (topics,) = _INT32.unpack_from(view, _INT16.size)
        position = _INT16.size + _INT32.size
        for _ in range(topics):
            name, position = _name(view, position)
            (count,) = _INT32.unpack_from(view, position)
            position += _INT32.size
            for _ in range(count):
                found.append(TopicPartition(name, *_INT32.unpack_from(view, position)))
                position += _INT32.size
    except (StructError, UnicodeDecodeError):
        return []
    return sorted(found)


def _name(view: memoryview, position: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(view, position)
    start = position + _INT16.size
    end = start + max(size, 0)
    return str(view[start:end], "utf-8"), end
