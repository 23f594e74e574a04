"""Readers at work while runs become segments, slots are truncated and starts move: they miss no record."""

import asyncio

from posthouse.records.batch import iter_headers
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.shared.database import DatabaseConnection
from posthouse.storage.shared.reads.pieces import find_pieces, read_inline
from posthouse.storage.shared.reads.runs import RunRow, SegmentRow, batches_of
from tests.storage.batches import make_batch
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation
from tests.storage.shared.test_retention import removal
from tests.storage.shared.test_slots import slots


class Reader:
    """Reads a log from its start to its end, again and again, as a broker does."""

    def __init__(self, logs: SharedLogs, connection: DatabaseConnection, log: int, pause: float) -> None:
        self._logs = logs
        self._connection = connection
        self._log = log
        self._pause = pause
        self.rounds = 0
        self.moved = 0
        self.is_stopped = False

    async def run(self) -> None:
        while not self.is_stopped:
            await self._read_all()
            self.rounds += 1

    async def _read_all(self) -> None:
        offset = 0
        while True:
            found = await find_pieces(self._connection, self._log, offset, max_bytes=500, max_rows=5)
            assert found is not None
            offset = max(offset, found.start)
            if not found.pieces:
                assert offset == found.next
                return
            for piece in found.pieces:
                data = await self._bytes_of(piece)
                if data is None:
                    self.moved += 1
                    break
                headers = [header for _, header in iter_headers(data)]
                assert headers[0].base_offset <= offset <= headers[-1].last_offset
                offset = headers[-1].next_offset

    async def _bytes_of(self, piece: RunRow | SegmentRow) -> bytes | bytearray | None:
        await asyncio.sleep(self._pause)
        if isinstance(piece, SegmentRow):
            return (await self._logs.objects.read(piece.key, piece.pos, piece.size))[HEADER_BYTES:]
        if piece.key is not None:
            return batches_of(piece, await self._logs.objects.read(piece.key, piece.pos, piece.size))
        data = await read_inline(self._connection, piece)
        return None if data is None else batches_of(piece, data)


async def test_readers_miss_nothing(logs: SharedLogs) -> None:
    [log, other] = await logs.create(partitions=2, segment_bytes="400")
    connections = [await logs.connect() for _ in range(3)]
    pauses = (0.1, 0.01, 0)
    readers = [
        Reader(logs, connection, log, pause) for connection, pause in zip(connections, pauses, strict=True)
    ]
    tasks = [asyncio.create_task(reader.run()) for reader in readers]
    try:
        for number in range(40):
            for _ in range(3):
                await logs.append(log, make_batch(b"%d" % number), in_object=number % 5 == 0)
                await logs.append(other, make_batch(b"%d" % number))
            await slots(logs).run_once()
            await consolidation(logs).run_once()
            await slots(logs).run_once()
            if number % 10 == 9:
                await logs.trim(log, number)
                await removal(logs).run_once()
            for task in tasks:
                if task.done():
                    await task
    finally:
        for reader in readers:
            reader.is_stopped = True
        await asyncio.gather(*tasks)
        for connection in connections:
            await connection.close()
    assert all(reader.rounds for reader in readers)
    assert readers[0].moved, "what the slow one has found goes before it reads it"
    await logs.check()
