"""A topic as server-sent events: one for each record, from given offsets on, as long as the client reads.

The id of an event says where the stream is behind it, in every partition. A client that sends the last id
that it has seen goes on there, without a gap and without a double. Nothing is kept for a stream but its
place: what is sent next is read when the client has taken what was sent before.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from posthouse.broker.broker import Broker
from posthouse.broker.filters.filter import Filter
from posthouse.model.errors import BadRequest, PosthouseError
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.admin.consumed_records import BytesEncoding, consumed_record
from posthouse.protocols.admin.record_reading import on_a_thread
from posthouse.protocols.admin.stream_places import encode_places
from posthouse.records.batch import iter_headers
from posthouse.records.record import Record, body_of, iter_body
from posthouse.records.visibility import AbortedProducer, visible_batches
from posthouse.storage.bounds import Slice

HEARTBEAT_SECONDS: Final = 15.0
_RETRY_MS: Final = 2000
_TAG: Final = "TAGS"
_READ_BYTES: Final = 256 * 1024
_CHUNK_BYTES: Final = 512 * 1024
"""Of events that are sent together; more only if one record has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedOfStream:
    key: bytes | None = None
    filters: Sequence[Filter] = ()
    """All have to match. Properties are the headers, and the tag is that of RocketMQ's messages."""
    encoding: BytesEncoding = "auto"

    def takes(self, record: Record) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        if not self.filters:
            return True
        headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
        return all(each.matches(headers, headers.get(_TAG)) for each in self.filters)


class SkippedRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The data of events that tell of records which do not come."""

    partition: int
    first: int
    next: int
    """The offset behind them."""


class RecordStream:
    """Of one client."""

    def __init__(
        self,
        broker: Broker,
        topic: Topic,
        places: Mapping[int, int],
        wanted: WantedOfStream,
        *,
        follows_growth: bool,
        may_read: Callable[[], bool],
        charge: Callable[[int], Awaitable[None]],
    ) -> None:
        """`follows_growth`: partitions that the topic gets later belong to the stream, too."""
        self._broker = broker
        self._topic = topic
        self._places = dict(sorted(places.items()))
        self._wanted = wanted
        self._follows_growth = follows_growth
        self._may_read = may_read
        self._charge = charge

    async def events(self) -> AsyncGenerator[bytes, None]:
        yield b"retry: %d\nid: %s\n\n" % (_RETRY_MS, self._id())
        loop = asyncio.get_running_loop()
        sent = loop.time()
        while (why := self._why_over()) is None:
            is_idle = True
            try:
                for number in list(self._places):
                    chunk = await self._next(number)
                    if chunk is None:
                        continue
                    is_idle = False
                    if chunk:
                        yield chunk
                        await self._charge(len(chunk))
                        sent = loop.time()
                if is_idle:
                    await self._wait(sent + HEARTBEAT_SECONDS - loop.time())
                if loop.time() - sent >= HEARTBEAT_SECONDS:
                    # With the place: what was left out need not be looked at again.
                    yield b":\nid: %s\n\n" % self._id()
                    sent = loop.time()
            except PosthouseError as error:
                why = str(error)
                break
        yield b"event: end\ndata: %s\n\n" % msgspec.json.encode({"detail": why})

    def _why_over(self) -> str | None:
        topic = self._broker.topics.find_by_id(self._topic.id)
        if topic is None:
            return f"the topic {self._topic.name!r} was deleted"
        if not self._may_read():
            return f"you may not read topic {self._topic.name!r} any more"
        self._topic = topic
        if self._follows_growth:
            for number in range(len(self._places), topic.partitions):
                self._places[number] = 0
        return None

    async def _next(self, number: int) -> bytes | None:
        """The next events of a partition; empty if there are none, but it has gone on. None at its end."""
        bounds = self._broker.bounds(self._topic, number)
        offset = self._places[number]
        if offset < bounds.start:
            self._places[number] = bounds.start
            lost = SkippedRecords(partition=number, first=offset, next=bounds.start)
            return _event(encode_places(self._topic, self._places), lost, "lost")
        if offset >= bounds.stable:
            return None
        read = await self._broker.read(self._topic, number, offset, _READ_BYTES, stable_only=True)
        if not read.data:
            return None
        events, self._places[number] = await on_a_thread(partial(self._decoded, number, offset, read))
        chunk = b"".join(events)
        traffic = self._broker.traffic[self._topic.name]
        traffic.records_out += len(events)
        traffic.bytes_out += len(chunk)
        return chunk

    def _decoded(self, number: int, offset: int, read: Slice) -> tuple[list[bytes], int]:
        """Events, and the offset behind them. Called on a thread."""
        events: list[bytes] = []
        size = 0
        places = dict(self._places)
        aborted = [
            AbortedProducer(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in read.aborted
        ]
        view = memoryview(read.data)
        for position, header in visible_batches(read.data, aborted):
            batch = view[position : position + header.length]
            try:
                for record in iter_body(body_of(batch, header), header):
                    if record.offset < offset or not self._wanted.takes(record):
                        continue
                    places[number] = record.offset + 1
                    view_of_record = consumed_record(number, record, self._wanted.encoding)
                    events.append(_event(encode_places(self._topic, places), view_of_record))
                    size += len(events[-1])
                    if size >= _CHUNK_BYTES:
                        return events, record.offset + 1
            except BadRequest:
                # The broker stores compressed batches without opening them: this one is not what it says.
                first, places[number] = places[number], header.next_offset
                skipped = SkippedRecords(partition=number, first=first, next=header.next_offset)
                events.append(_event(encode_places(self._topic, places), skipped, "unreadable"))
        return events, max(header.next_offset for _, header in iter_headers(read.data))

    async def _wait(self, seconds: float) -> None:
        """For more records."""
        seen: list[tuple[PartitionId, int]] = []
        for number, offset in self._places.items():
            end = self._broker.bounds(self._topic, number).stable
            if end > offset:
                await asyncio.sleep(0)
                return
            seen.append((self._topic.partition(number), end))
        await self._broker.wait_for_records(seen, 1, max(seconds, 0.0), stable_only=True)

    def _id(self) -> bytes:
        return encode_places(self._topic, self._places).encode()


def _event(id: str, data: msgspec.Struct, kind: str = "") -> bytes:
    """Events with records have no name: that is what an `EventSource` takes for a message."""
    name = b"event: %s\n" % kind.encode() if kind else b""
    return b"%sid: %s\ndata: %s\n\n" % (name, id.encode(), msgspec.json.encode(data))
