"""Logs on a real PostgreSQL, filled as a commit would fill them."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from posthouse.model.clock import Clock
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.records.batch import parse_header
from posthouse.records.record import iter_records
from posthouse.records.references import Reference, build_references
from posthouse.storage.shared.database import Database, DatabaseConnection
from posthouse.storage.shared.pieces import find_pieces, read_inline
from posthouse.storage.shared.runs import RunRow, batches_of
from tests.storage.batches import make_topic, values_in
from tests.storage.shared.object_memory import MemoryObjects


class SharedLogs:
    """The lease is held; every append is one commit of its own."""

    def __init__(self, database: Database, connection: DatabaseConnection, clock: Clock) -> None:
        self.database = database
        self.connection = connection
        self.clock = clock
        self.objects = MemoryObjects(clock)
        self.holder: UUID = uuid4()
        self.epoch = 1
        self.topics: dict[TopicId, Topic] = {}

    async def take_lease(self) -> None:
        self.holder, self.epoch = uuid4(), self.epoch + 1
        await self.connection.execute(
            "UPDATE scope SET holder = %s, epoch = %s, until = now() + interval '1 hour'",
            [self.holder, self.epoch],
        )

    async def create(self, name: str = "orders", partitions: int = 1, **overrides: str) -> list[int]:
        """A topic; returns the ids of its logs."""
        topic = make_topic(name, partitions, id=None, **overrides)
        self.topics[topic.id] = topic
        await self.connection.execute(
            "INSERT INTO topic (id, name, partitions, overrides) VALUES (%s, %s, %s, '{}')",
            [UUID(bytes=topic.id), name, partitions],
        )
        found = await self.connection.execute(
            "INSERT INTO log (topic, partition) SELECT %s, generate_series(0, %s - 1) RETURNING id",
            [UUID(bytes=topic.id), partitions],
        )
        return [row[0] for row in await found.fetchall()]

    async def partition_of(self, log: int) -> PartitionId:
        row = await self.one("SELECT topic, partition FROM log WHERE id = %s", log)
        return PartitionId(TopicId(row[0].bytes), row[1])

    async def append(self, log: int, *batches: bytes | bytearray, key: str | None = None) -> int:
        """One run, inline or in an object of its own; returns its base offset."""
        data = b"".join(batches)
        headers = [parse_header(batch) for batch in batches]
        count = sum(header.last_offset_delta + 1 for header in headers)
        newest = max(header.max_timestamp for header in headers)
        inline = object_id = None
        slot = await self.open_slot()
        if key is not None:
            await self.objects.put(key, data)
            [object_id] = await self.one(
                "INSERT INTO object (key, size, live) VALUES (%s, %s, 1) RETURNING id", key, len(data)
            )
        else:
            [inline] = await self.one(
                "INSERT INTO inline_data VALUES (%s, nextval('inline_id'), %s) RETURNING id", slot, data
            )
        return await self._add(log, count, slot, inline, object_id, 0, len(data), newest, None)

    async def append_together(self, key: str, parts: Sequence[tuple[int, bytes | bytearray]]) -> None:
        """Runs of several logs in one object, as a large commit writes them."""
        data = b"".join(batch for _, batch in parts)
        await self.objects.put(key, data)
        [object_id] = await self.one(
            "INSERT INTO object (key, size, live) VALUES (%s, %s, %s) RETURNING id",
            key,
            len(data),
            len(parts),
        )
        slot, position = await self.open_slot(), 0
        for log, batch in parts:
            header = parse_header(batch)
            count, size = header.last_offset_delta + 1, len(batch)
            newest = header.max_timestamp
            await self._add(log, count, slot, None, object_id, position, size, newest, None)
            position += size

    async def refer(self, log: int, references: Sequence[Reference]) -> int:
        batch = build_references(references)
        [record] = iter_records(batch)
        header = parse_header(batch)
        count, slot = header.last_offset_delta + 1, await self.open_slot()
        newest = header.max_timestamp
        return await self._add(log, count, slot, None, None, 0, len(batch), newest, record.value)

    async def _add(
        self,
        log: int,
        count: int,
        slot: int,
        inline: int | None,
        object_id: int | None,
        pos: int,
        size: int,
        newest: int,
        refs: bytes | None,
    ) -> int:
        row = await self.one(
            "UPDATE log SET next = next + %s, bytes = bytes + %s WHERE id = %s RETURNING next - %s",
            count,
            size,
            log,
            count,
        )
        base = int(row[0])
        await self.connection.execute(
            "INSERT INTO run (slot, log, base, last, inline, object, pos, size, max_time, created_ms, refs) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [
                slot,
                log,
                base,
                base + count - 1,
                inline,
                object_id,
                pos,
                size,
                newest,
                self.clock.now_ms(),
                refs,
            ],
        )
        return base

    async def read(self, log: int, offset: int | None = None, max_bytes: int = 10_000) -> bytes:
        """All batches from `offset` on, as a reader gets them."""
        if offset is None:
            [offset] = await self.one("SELECT start FROM log WHERE id = %s", log)
        parts: list[bytes] = []
        while True:
            found = await find_pieces(self.connection, log, offset, max_bytes=max_bytes)
            assert found is not None
            if not found.pieces:
                assert offset == found.next
                return b"".join(parts)
            for piece in found.pieces:
                parts.append(await self._bytes_of(piece))
                offset = piece.last + 1

    async def _bytes_of(self, piece: object) -> bytes:
        if not isinstance(piece, RunRow):
            raise NotImplementedError
        if piece.object is not None:
            assert piece.key is not None
            return bytes(batches_of(piece, await self.objects.read(piece.key, piece.pos, piece.size)))
        data = b"" if piece.refs is not None else await read_inline(self.connection, piece)
        assert data is not None
        return bytes(batches_of(piece, data))

    async def values(self, log: int) -> dict[int, bytes | None]:
        return values_in(await self.read(log))

    async def open_slot(self) -> int:
        row = await self.one("SELECT number FROM slot WHERE state = 'open'")
        return int(row[0])

    async def one(self, statement: str, *values: object) -> tuple[Any, ...]:
        found = await self.connection.execute(statement.encode(), values)
        row = await found.fetchone()
        assert row is not None, statement
        return row
