"""Reads bodies of messages again: those of leased messages may have been dropped from memory."""

import asyncio
from collections.abc import Iterator

from posthouse.broker.queues.message import Message
from posthouse.broker.queues.reading import unpacked
from posthouse.model.errors import CorruptBatch, NotFound, OffsetOutOfRange, RecordTooLarge
from posthouse.model.ids import PartitionId
from posthouse.records.batch import iter_headers
from posthouse.records.raw import RawRecord, iter_raw
from posthouse.storage.contract import Storage

_UNREADABLE = (OffsetOutOfRange, NotFound, CorruptBatch, RecordTooLarge)


class Rereading:
    """Messages should be reloaded in the order of their publishing: then each batch is read once.

    Between one batch and the next others get the event loop, also where nothing has to be waited for.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._source: PartitionId | None = None
        self._records: Iterator[RawRecord] = iter(())
        self._next = self._end = 0
        """The remaining offsets of the batch."""

    async def reload(self, message: Message) -> bool:
        """Whether it was still there."""
        while True:
            source, offset = place = message.place
            raw = await self._record(source, offset)
            if raw is not None:
                message.key, message.value, message.headers = raw.key, raw.value, raw.headers
                message.timestamp = raw.timestamp
                return True
            if message.place == place:
                return False  # else it was moved while it was being read

    async def _record(self, source: PartitionId, offset: int) -> RawRecord | None:
        try:
            if source != self._source or not self._next <= offset < self._end:
                await self._open(source, offset)
            for raw in self._records:
                self._next = raw.offset + 1
                if raw.offset >= offset:
                    return raw if raw.offset == offset else None
        except _UNREADABLE:
            self._source = None
        return None

    async def _open(self, source: PartitionId, offset: int) -> None:
        """The batch with this offset, or none."""
        self._source, self._records = None, iter(())
        found = await self._storage.read(source, offset, 1)
        await asyncio.sleep(0)
        view = memoryview(found.data)
        for place, header in iter_headers(view):
            if header.next_offset > offset:
                body = await unpacked(view[place : place + header.length], header)
                self._records = iter_raw(body, header, offset, header.next_offset)
                self._source, self._next, self._end = source, offset, header.next_offset
                return
