"""The batches of one open transaction in one partition."""

from collections.abc import AsyncIterator

from posthouse.model.ids import PartitionId
from posthouse.records.batch import iter_headers
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append
from posthouse.storage.producers import NOT_OPEN

_READ_BYTES = 1024 * 1024


async def transaction_batches(
    storage: Storage, partition: PartitionId, producer_id: int
) -> AsyncIterator[Append]:
    """As they lie in the log, with their offsets. Everything of the transaction must be durable."""
    producer = storage.producers(partition).get(producer_id)
    if producer is None or producer.open_since == NOT_OPEN:
        return
    offset, end = producer.open_since, storage.bounds(partition).end
    while offset < end:
        found = await storage.read(partition, offset, _READ_BYTES)
        if not found.data:
            return
        view = memoryview(found.data)
        for position, header in iter_headers(view):
            offset = header.next_offset
            if (
                header.producer_id == producer_id
                and header.is_transactional
                and not header.is_control
                and header.base_offset >= producer.open_since
            ):
                batch = view[position : position + header.length]
                yield Append(partition, batch, header, base_offset=header.base_offset)
