"""The position of a message in the broker ("physical offset"): one number, from which it is found again.

63 bits: 1 for a topic of retries, 17 of the partition, 45 of the offset. The topic is not in it: clients send
its name, or that of the group whose retries it is from.
"""

from typing import Final, NamedTuple

from posthouse.model.errors import BadRequest

_OFFSET_BITS: Final = 45
_PARTITION_BITS: Final = 17
_HALF: Final = (1 << _PARTITION_BITS) - 1
"""In place of a partition: the offset is the id of a half message."""
_RETRY: Final = 1 << (_OFFSET_BITS + _PARTITION_BITS)


class Position(NamedTuple):
    partition: int
    offset: int
    is_retry: bool = False


def pack_position(partition: int, offset: int, *, is_retry: bool) -> int:
    """Raises BadRequest where it does not fit: beyond 35 trillion messages, or 131,071 partitions."""
    if offset >> _OFFSET_BITS or not 0 <= partition < _HALF:
        raise BadRequest(f"partition {partition}, offset {offset}: RocketMQ's clients cannot be told")
    return (_RETRY if is_retry else 0) | partition << _OFFSET_BITS | offset


def unpack_position(position: int) -> Position:
    """Raises BadRequest."""
    if not 0 <= position < 2 * _RETRY:
        raise BadRequest(f"no message has the position {position}")
    return Position(
        position >> _OFFSET_BITS & (1 << _PARTITION_BITS) - 1,
        position & (1 << _OFFSET_BITS) - 1,
        bool(position & _RETRY),
    )


def pack_half_position(id: int) -> int:
    """Raises BadRequest."""
    if id >> _OFFSET_BITS:
        raise BadRequest(f"half message {id}: RocketMQ's clients cannot be told")
    return _HALF << _OFFSET_BITS | id


def half_id(position: int) -> int:
    """Raises BadRequest if it is the position of another message."""
    found = unpack_position(position)
    if found.partition != _HALF or found.is_retry:
        raise BadRequest(f"the message at position {position} is no half message")
    return found.offset
