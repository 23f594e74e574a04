"""Schemas of a schema registry that keeps them in this broker.

Confluent's Schema Registry and Karapace write each schema to the topic `_schemas`, as JSON: `id`, `schema`,
and `schemaType` where it is not Avro. They are read when records are looked at, from where the last look
ended.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, Protocol

import msgspec

from posthouse.model.errors import BadRequest
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.protocols.admin.decoding.avro import AvroSchema
from posthouse.records.batch import iter_headers
from posthouse.records.record import iter_records
from posthouse.storage.bounds import Bounds, Slice

SCHEMAS_TOPIC: Final = "_schemas"
_PARTITION: Final = 0
_SLICE_BYTES: Final = 256 * 1024
_MOST_BYTES: Final = 4 * 1024 * 1024
"""Read at one look; the next one goes on from there."""
_MOST_SCHEMAS: Final = 10_000
_LARGEST_SCHEMA: Final = 256 * 1024


class SchemaKind(StrEnum):
    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


@dataclass(slots=True, kw_only=True)
class StoredSchema:
    kind: SchemaKind
    text: str
    _parsed: AvroSchema | None = None

    def decode(self, payload: bytes) -> object:
        """Of a schema of Avro. Raises MalformedAvro."""
        if self._parsed is None:
            self._parsed = AvroSchema(self.text)
        return self._parsed.decode(payload)


class SchemaLog(Protocol):
    """What reading needs of the broker."""

    def bounds(self, topic: Topic, partition: int) -> Bounds: ...

    async def read(
        self, topic: Topic, partition: int, offset: int, max_bytes: int, *, stable_only: bool = False
    ) -> Slice: ...


class Schemas:
    """Owned by the event loop; other threads may look schemas up."""

    def __init__(self) -> None:
        self._topic: TopicId | None = None
        self._next = 0
        self._by_id: dict[int, StoredSchema] = {}

    def get(self, id: int) -> StoredSchema | None:
        return self._by_id.get(id)

    async def refresh(
        self, log: SchemaLog, topic: Topic, on_a_thread: Callable[[Callable[[], None]], Awaitable[None]]
    ) -> None:
        """Read what the registry has written since the last look."""
        if topic.id != self._topic:
            self._topic, self._next, self._by_id = topic.id, 0, {}
        size = 0
        while size < _MOST_BYTES:
            bounds = log.bounds(topic, _PARTITION)
            offset = max(self._next, bounds.start)
            if offset >= bounds.stable:
                return
            read = await log.read(topic, _PARTITION, offset, _SLICE_BYTES, stable_only=True)
            if not read.data:
                return
            size += len(read.data)
            await on_a_thread(partial(self._take, bytes(read.data)))
            self._next = max(header.next_offset for _, header in iter_headers(read.data))

    def _take(self, data: bytes) -> None:
        for position, header in iter_headers(data):
            try:
                for record in iter_records(data[position : position + header.length]):
                    self._add(record.value)
            except BadRequest:
                continue  # no batch of a registry: its producer compressed it wrongly

    def _add(self, value: bytes | None) -> None:
        if not value or len(value) > _LARGEST_SCHEMA or len(self._by_id) >= _MOST_SCHEMAS:
            return
        try:
            written = msgspec.json.decode(value, type=_Written)
            kind = SchemaKind(written.schemaType)
        except ValueError:
            return  # the registry also writes other things to this topic
        self._by_id[written.id] = StoredSchema(kind=kind, text=written.schema)


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    schema: str
    schemaType: str = SchemaKind.AVRO
