"""Logs on a real PostgreSQL, filled as a commit would fill them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import psycopg

from posthouse.model.clock import Clock
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import HOUSEKEEPING, Scope
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers, parse_header
from posthouse.records.record import iter_records
from posthouse.records.references import Reference, build_references
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.shared.administration.verify import SharedTally, SharedVerification
from posthouse.storage.shared.database import Database, DatabaseConnection
from posthouse.storage.shared.housekeeping.kept_logs import KeptLogs
from posthouse.storage.shared.objects.names import ObjectNames
from posthouse.storage.shared.reads.pieces import find_pieces, read_inline
from posthouse.storage.shared.reads.runs import RunRow, SegmentRow, batches_of
from tests.storage.batches import make_topic, values_in
from tests.storage.shared.object_memory import MemoryObjects

Step = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    incarnation: UUID = field(default_factory=uuid4)
    epoch: int = 1
    is_lost: bool = False

    def holds(self, scope: Scope) -> bool:
        return True

    def count_commits(self, acknowledged: Callable[[], int]) -> None:
        return

    def fenced(self, why: str) -> None:
        raise AssertionError("nothing is committed by a storage here")


class SteppedConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """`step` is called before and after every statement."""

    step: Step

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        name = " ".join(str(query).split())[:40]
        self.step(f"before {name}")
        found = await super().execute(query, params, **options)
        self.step(f"after {name}")
        return found


class SharedLogs:
    """The lease is held; every append is one commit of its own."""

    def __init__(self, database: Database, connection: DatabaseConnection, clock: Clock) -> None:
        self.database = database
        self.connection = connection
        self.clock = clock
        self.objects = MemoryObjects(clock)
        self.lease = Lease()
        self.kept = KeptLogs(self.lease)
        self.names = ObjectNames(self.lease.incarnation)
        self.step: Step = lambda name: None
        self.topics: dict[TopicId, Topic] = {}

    async def take_lease(self) -> None:
        """With all scopes. The broker that had it before is fenced."""
        before = self.lease.incarnation
        self.lease = Lease(epoch=self.lease.epoch + 1)
        self.kept = KeptLogs(self.lease)
        for scope in HOUSEKEEPING:
            self.kept.take(scope)
        self.names = ObjectNames(self.lease.incarnation)
        async with self.connection.transaction():
            await self.connection.execute("SELECT fence(%s)", [before])
            await self.connection.execute(
                "SELECT begin_lease(%s, %s, 3600, false)", [self.lease.incarnation, self.lease.epoch]
            )
            await self.connection.execute(
                "UPDATE scope SET holder = %s, epoch = epoch + 1", [self.lease.incarnation]
            )

    async def release_lease(self) -> None:
        await self.connection.execute(
            "SELECT release_lease(%s, %s)", [self.lease.incarnation, self.lease.epoch]
        )

    async def connect(self) -> DatabaseConnection:
        """A connection for housekeeping, which stops where `step` says so."""
        made = await SteppedConnection.connect(self.database._conninfo, autocommit=True)
        made.step = lambda name: self.step(name)
        return made

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

    async def append(
        self, log: int, *batches: bytes | bytearray, in_object: bool = False, slot: int | None = None
    ) -> int:
        """One run, inline or in an object of its own; returns its base offset."""
        data = b"".join(batches)
        headers = [parse_header(batch) for batch in batches]
        count = sum(header.last_offset_delta + 1 for header in headers)
        newest = max(header.max_timestamp for header in headers)
        inline = object_id = None
        slot = await self.open_slot() if slot is None else slot
        if in_object:
            key = self.names.new()
            await self.objects.put(key, data)
            [object_id] = await self.one(
                "INSERT INTO object (key, size, live) VALUES (%s, %s, 1) RETURNING id", key, len(data)
            )
        else:
            [inline] = await self.one(
                "INSERT INTO inline_data VALUES (%s, nextval('inline_id'), %s) RETURNING id", slot, data
            )
        return await self._add(log, count, slot, inline, object_id, 0, len(data), newest, None)

    async def append_together(self, *parts: tuple[int, bytes | bytearray]) -> None:
        """Runs of several logs in one object, as a large commit writes them."""
        data, key = b"".join(batch for _, batch in parts), self.names.new()
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
        async with self.connection.transaction():
            row = await self.one(
                "UPDATE log SET next = next + %s, bytes = bytes + %s WHERE id = %s RETURNING next - %s",
                count,
                size,
                log,
                count,
            )
            base = int(row[0])
            await self.connection.execute(
                "INSERT INTO run (slot, log, base, last, inline, object, pos, size, max_time, created_ms, "
                "refs) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
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
        """All batches from the one that holds `offset` on, as a reader gets them."""
        if offset is None:
            [offset] = await self.one("SELECT start FROM log WHERE id = %s", log)
        assert offset is not None
        first = offset
        parts: list[bytes] = []
        while True:
            found = await find_pieces(self.connection, log, offset, max_bytes=max_bytes)
            assert found is not None
            if not found.pieces:
                assert offset == found.next
                return b"".join(parts)
            for piece in found.pieces:
                data = await self._bytes_of(piece)
                parts += [
                    data[position : position + header.length]
                    for position, header in iter_headers(data)
                    if header.last_offset >= first
                ]
                offset = piece.last + 1

    async def _bytes_of(self, piece: RunRow | SegmentRow) -> bytes:
        if isinstance(piece, SegmentRow):
            return (await self.objects.read(piece.key, piece.pos, piece.size))[HEADER_BYTES:]
        if piece.object is not None:
            assert piece.key is not None
            return bytes(batches_of(piece, await self.objects.read(piece.key, piece.pos, piece.size)))
        data = b"" if piece.refs is not None else await read_inline(self.connection, piece)
        assert data is not None
        return bytes(batches_of(piece, data))

    async def trim(self, log: int, offset: int) -> None:
        async with self.connection.transaction():
            await self.connection.execute(
                "UPDATE log SET start = least(%(offset)s, next) WHERE id = %(log)s AND start < %(offset)s",
                {"offset": offset, "log": log},
            )
            await self.connection.execute("UPDATE log SET bytes = stored_bytes(id) WHERE id = %s", [log])

    async def check(self) -> SharedTally:
        """Nothing is wrong, in the objects and in the books."""
        verification = SharedVerification(self.connect, self.objects)
        assert [each async for each in verification.findings()] == []
        wrong = await self.connection.execute(
            "SELECT log.id, bytes, stored_bytes(log.id) FROM log JOIN topic ON topic.id = log.topic "
            "WHERE bytes <> stored_bytes(log.id) AND deleted_at IS NULL"
        )
        assert await wrong.fetchall() == []
        return verification.tally

    async def segments(self, log: int) -> list[SegmentRow]:
        found = await find_pieces(self.connection, log, 0, max_bytes=2**40)
        assert found is not None
        return [piece for piece in found.pieces if isinstance(piece, SegmentRow)]

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
