"""Batches and topics for tests."""

from collections.abc import Sequence

from posthouse.model.ids import PartitionId, TopicId, new_topic_id
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers, parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.record import iter_records
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append

TINY = {"segment.bytes": "400", "index.interval.bytes": "64"}
"""Three or four small batches to a segment, an index entry for nearly every one."""


def make_topic(
    name: str = "orders", partitions: int = 1, *, id: TopicId | None = None, **overrides: str
) -> Topic:
    """Overrides are written with underscores: `segment_bytes="200"`."""
    dotted = TINY | {key.replace("_", "."): value for key, value in overrides.items()}
    return Topic(
        id=id or new_topic_id(),
        name=name,
        partitions=partitions,
        overrides=dotted,
        config=TopicConfig().with_overrides(dotted),
    )


def make_batch(*values: bytes, timestamps: Sequence[int] = ()) -> bytearray:
    builder = BatchBuilder()
    for number, value in enumerate(values):
        builder.add(None, value, timestamp=timestamps[number] if timestamps else 1000)
    return builder.build()


def append(partition: PartitionId, *values: bytes, timestamps: Sequence[int] = ()) -> Append:
    batch = make_batch(*values, timestamps=timestamps)
    return Append(partition, memoryview(batch), parse_header(batch))


def values_in(data: bytes | bytearray | memoryview) -> dict[int, bytes | None]:
    """Offset → value of every record in consecutive batches. All of `data` must be whole batches."""
    found: dict[int, bytes | None] = {}
    end = 0
    view = memoryview(data)
    for position, header in iter_headers(view):
        end = position + header.length
        for record in iter_records(view[position:end]):
            assert record.offset not in found
            found[record.offset] = record.value
    assert end == len(data), "a slice holds whole batches"
    return found


async def read_all(
    storage: Storage, partition: PartitionId, offset: int | None = None, max_bytes: int = 1000
) -> dict[int, bytes | None]:
    """Everything from `offset` on, as a consumer reads it: slice after slice."""
    if offset is None:
        offset = storage.bounds(partition).start
    found: dict[int, bytes | None] = {}
    while offset < storage.bounds(partition).end:
        part = await storage.read(partition, offset, max_bytes)
        values = values_in(part.data)
        assert not values.keys() & found.keys(), "no batch comes twice"
        found |= values
        following = max((header.next_offset for _, header in iter_headers(part.data)), default=offset)
        assert following > offset, "every slice leads on, also past damage"
        offset = following
    return found
