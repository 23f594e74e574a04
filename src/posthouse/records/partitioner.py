"""The partitioner: maps a key to a partition.

Every producer of a topic has to make the same choice, or the records of a key lose their order. Kafka's
clients use MurmurHash2 with their own seed, so the broker, its client and Spark do the same.
"""

from struct import Struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_FOUR = Struct("<I")


def murmur2(data: bytes | memoryview) -> int:
    """MurmurHash2 of 32 bits with the seed of Kafka's clients, unsigned."""
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


def partition_of(key: bytes | memoryview, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
