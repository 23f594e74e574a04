"""Offset message ids: the broker's host and the message's position, in hex.

32 digits with IPv4, 56 with IPv6. Not to be confused with UNIQ_KEY, the id that a client makes, which has as
many digits and another content.
"""

from dataclasses import dataclass
from typing import Final

from posthouse.protocols.rocketmq.codec.errors import BadHost, BadMessageId
from posthouse.protocols.rocketmq.codec.hosts import V4_SIZE, V6_SIZE, Host, unpack_host

_POSITION_SIZE: Final = 8
_LENGTHS: Final = tuple(2 * (host + _POSITION_SIZE) for host in (V4_SIZE, V6_SIZE))
_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_MOST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageId:
    host: Host
    position: int


def make_message_id(packed_host: bytes, position: int) -> str:
    """`packed_host` is the broker's, as `pack_host` returns it. Digits are upper case, as upstream."""
    if not 0 <= position <= _MOST:
        raise BadMessageId(f"there is no position {position}")
    return f"{packed_host.hex()}{position:016x}".upper()


def parse_message_id(text: str) -> MessageId:
    """Raises BadMessageId."""
    if len(text) not in _LENGTHS or not _DIGITS.issuperset(text):
        raise BadMessageId(f"a message id has {_LENGTHS[0]} or {_LENGTHS[1]} hex digits")
    data = bytes.fromhex(text)
    position = int.from_bytes(data[-_POSITION_SIZE:])
    if position > _MOST:
        raise BadMessageId(f"message id {text}: there is no position {position}")
    try:
        return MessageId(host=unpack_host(data[:-_POSITION_SIZE]), position=position)
    except BadHost as error:
        raise BadMessageId(f"message id {text}: {error}") from None
