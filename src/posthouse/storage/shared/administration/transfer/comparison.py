"""Whether two storages have the same content, as a broker reads them."""

import hashlib
from collections.abc import Callable, Mapping

from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId
from posthouse.records.batch import iter_headers
from posthouse.storage.contract import Storage
from posthouse.storage.spaces import Space

_READ_BYTES = 1024 * 1024

State = Mapping[Space, Mapping[bytes, bytes]]


class Unequal(PosthouseError):
    """A copy differs from what was copied."""


def take_state(storage: Storage) -> dict[Space, dict[bytes, bytes]]:
    """All that is stored for the broker, once: the storage gives each value away only once."""
    found = {space: storage.take_state(space) for space in Space if space is not Space.PRODUCERS}
    return {space: values for space, values in found.items() if values}


def compare_state(one: State, other: State) -> None:
    """Raises Unequal."""
    for space in Space:
        if one.get(space, {}) != other.get(space, {}):
            raise Unequal(f"the copy has other state than the original: {space.name.lower()}")


async def compare_logs(one: Storage, other: Storage, on_progress: Callable[[int], None]) -> int:
    """Topics, bounds, producers, aborted transactions and all bytes, whose number is returned.

    Raises Unequal.
    """
    described = [
        {id: (each.name, each.partitions, dict(each.overrides)) for id, each in storage.topics.items()}
        for storage in (one, other)
    ]
    if described[0] != described[1]:
        raise Unequal("the copy has other topics than the original")
    total = 0
    for topic in one.topics.values():
        for partition in topic.partition_ids():
            name = f"{topic.name}-{partition.index}"
            if one.bounds(partition) != other.bounds(partition):
                raise Unequal(
                    f"{name}: {other.bounds(partition)} in the copy, {one.bounds(partition)} before"
                )
            if one.producers(partition) != other.producers(partition):
                raise Unequal(f"{name}: the copy has other producers than the original")
            end = one.bounds(partition).end
            if one.aborted(partition, 0, end) != other.aborted(partition, 0, end):
                raise Unequal(f"{name}: the copy has other aborted transactions than the original")
            digest, size = await _digest(one, partition, on_progress)
            if (digest, size) != await _digest(other, partition, lambda size: None):
                raise Unequal(f"{name}: the copy has other records than the original")
            total += size
    return total


async def _digest(
    storage: Storage, partition: PartitionId, on_progress: Callable[[int], None]
) -> tuple[bytes, int]:
    """A checksum over all batches, and their size."""
    digest, size = hashlib.sha256(), 0
    offset, end = storage.bounds(partition).start, storage.bounds(partition).end
    while offset < end:
        data = (await storage.read(partition, offset, _READ_BYTES)).data
        if not len(data):
            raise Unequal(f"{partition} cannot be read from offset {offset} on")
        for _, header in iter_headers(data):
            offset = header.next_offset
        digest.update(data)
        size += len(data)
        on_progress(len(data))
    return digest.digest(), size
