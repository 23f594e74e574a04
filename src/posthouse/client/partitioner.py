"""Which partition a record goes to: the choice that Kafka's own producers make, so that keys stay together
whoever writes them."""

from posthouse.records.arrow_layout import BinaryColumn
from posthouse.records.batch import Readable
from posthouse.records.columns import KERNEL, Kernel
from posthouse.records.murmur import murmur2

__all__ = ["murmur2", "partition_of", "partitions_of"]


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partitions_of(
    keys: BinaryColumn, rows: int, partitions: int, keyless: int, kernel: Kernel = KERNEL
) -> Readable:
    """The partition of each of the first `rows` keys, 32 bits each; `keyless` where there is no key."""
    return kernel.partitions(keys, rows, partitions, keyless)
