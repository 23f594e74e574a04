"""The batches of one transaction in one partition."""

from collections.abc import AsyncIterator

from posthouse.model.ids import PartitionId
from posthouse.records.batch import iter_headers
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append

_READ_BYTES = 1024 * 1024


async def transaction_batches(
    storage: Storage, partition: PartitionId, producer_id: int, first: int
) -> AsyncIterator[Append]:
    """As they lie in the log, with their offsets, from the `first` of the transaction to its marker, or to
    the end if it is open. Everything of the transaction must be durable, and its log refreshed."""
    bounds = storage.bounds(partition)
    offset, end = max(first, bounds.start), bounds.end  # some may have been deleted
    while offset < end:
        found = await storage.read(partition, offset, _READ_BYTES)
        if not found.data:
            return
        view = memoryview(found.data)
        for position, header in iter_headers(view):
            offset = header.next_offset
            if header.producer_id != producer_id or header.base_offset < first:
                continue
            if header.is_control:
                return
            if header.is_transactional:
                batch = view[position : position + header.length]
                yield Append(partition, batch, header, base_offset=header.base_offset)
