"""The position of a message in the broker ("physical offset"): one number, from which it is found again.

63 bits: 1 for a topic of retries, 17 of the partition, 45 of the offset. The topic is not in it: clients send
its name, or that of the group whose retries it is from.
"""

from typing import Final, NamedTuple

from posthouse.model.errors import BadRequest

_OFFSET_BITS: Final = 45
_PARTITION_BITS: Final = 17
_RETRY: Final = 1 << (_OFFSET_BITS + _PARTITION_BITS)


class Position(NamedTuple):
    partition: int
    offset: int
    is_retry: bool = False


def pack_position(partition: int, offset: int, *, is_retry: bool) -> int:
    """Raises BadRequest where it does not fit: beyond 35 trillion messages, or 131,072 partitions."""
    if offset >> _OFFSET_BITS or partition >> _PARTITION_BITS:
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
