"""MurmurHash2 as Kafka's producers use it to choose a key's partition."""

from struct import Struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_FOUR = Struct("<I")


def murmur2(data: bytes | memoryview) -> int:
    """MurmurHash2 of 32 bits with Kafka's seed, unsigned."""
    size = len(data)
    hashed = _SEED ^ size
    whole = size & ~3
    for (word,) in _FOUR.iter_unpack(memoryview(data)[:whole]):
        word = word * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        hashed = hashed * _M & _MASK ^ word
    if whole != size:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15
