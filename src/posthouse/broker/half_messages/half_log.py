"""The log of half messages: the only partition of an internal topic. The offset of a message is its id."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final

from posthouse.broker.half_messages.half_message import HalfMessage, decode
from posthouse.broker.stored_records import read_piece, read_records, records_in
from posthouse.model.errors import PosthouseError, Unavailable
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Operation, Put, Trim
from posthouse.storage.outcomes import Outcome

TOPIC_NAME: Final = ":half-messages"
"""Clients cannot use a name with a colon."""
_OVERRIDES: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "retention.local.ms": "-1",
    "retention.local.bytes": "-1",
    "max.message.bytes": str(2**31 - 1),
    "segment.bytes": str(64 * 1024 * 1024),
    "segment.ms": str(2**63 - 1),
}
_NO_HEADERS: Final = b"\x00"
_WAVE_BYTES: Final = 1024 * 1024

Written = Callable[[int | PosthouseError], None]


class HalfLog:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, defaults: TopicConfig) -> None:
        self._storage = storage
        self._defaults = defaults
        self._partition: PartitionId | None = None
        self._waiting: list[tuple[HalfMessage, Written]] = []
        self._waiting_bytes = 0
        self._is_planned = False
        self._creating: asyncio.Task[None] | None = None

    def load(self) -> None:
        for topic in self._storage.topics.values():
            if topic.name == TOPIC_NAME:
                self._partition = topic.partition(0)

    @property
    def start(self) -> int:
        return 0 if self._partition is None else self._storage.bounds(self._partition).start

    @property
    def end(self) -> int:
        return 0 if self._partition is None else self._storage.bounds(self._partition).end

    # Writing

    def append(self, message: HalfMessage, written: Written) -> None:
        """Those of one turn of the event loop become one batch."""
        self._waiting.append((message, written))
        self._waiting_bytes += message.size
        if self._waiting_bytes > _WAVE_BYTES:
            self._write()
        elif not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._finish)

    def _finish(self) -> None:
        self._is_planned = False
        self._write()

    def _write(self) -> None:
        if not self._waiting or self._creating is not None:
            return
        if self._partition is None:
            self._creating = asyncio.get_running_loop().create_task(self._create(), name="half messages' log")
            self._creating.add_done_callback(self._created)
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        builder = BatchBuilder()
        for message, _ in waiting:
            builder.add_raw(None, message.encode(), _NO_HEADERS, message.prepared_ms)
        batch = memoryview(builder.build())
        try:
            future = self._storage.commit([Append(self._partition, batch, parse_header(batch))])
        except PosthouseError as error:
            _tell(waiting, error)
        else:
            future.add_done_callback(lambda done: _written(waiting, done))

    async def _create(self) -> None:
        await self._storage.settle_definitions()
        self.load()  # an attempt that failed without an answer may have created it
        if self._partition is None:
            topic = Topic(
                id=new_topic_id(),
                name=TOPIC_NAME,
                partitions=1,
                overrides=_OVERRIDES,
                config=self._defaults.with_overrides(_OVERRIDES),
            )
            await self._storage.create_topics([topic])
            self._partition = topic.partition(0)

    def _created(self, task: "asyncio.Task[None]") -> None:
        self._creating = None
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._write()
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        _tell(waiting, error if isinstance(error, PosthouseError) else Unavailable(f"no log: {error!r}"))

    async def trim(self, offset: int, together: Iterable[Put]) -> None:
        assert self._partition is not None
        operations: list[Operation] = [Trim(self._partition, offset), *together]
        await self._storage.commit(operations)

    # Reading

    async def read(self, ids: Sequence[int]) -> dict[int, HalfMessage]:
        """Those that can be read. Raises Unavailable and DataDamaged."""
        if self._partition is None:
            return {}
        records = await read_records(self._storage, self._partition, sorted(ids))
        return {id: decode(record) for id, record in records.items()}

    async def scan(self) -> AsyncIterator[tuple[int, HalfMessage]]:
        """All that it has, in order."""
        if self._partition is None:
            return
        offset, end = self.start, self.end
        while offset < end:
            piece = await read_piece(self._storage, self._partition, offset, end)
            for record in records_in(piece, offset):
                yield record.offset, decode(record)
            offset = piece.following


def _written(waiting: Sequence[tuple[HalfMessage, Written]], done: "asyncio.Future[list[Outcome]]") -> None:
    error = done.exception()
    if error is None:
        [outcome] = done.result()
        for number, (_, written) in enumerate(waiting):
            written(outcome.base_offset + number)
    elif isinstance(error, PosthouseError):
        _tell(waiting, error)
    else:
        raise error


def _tell(waiting: Sequence[tuple[HalfMessage, Written]], error: PosthouseError) -> None:
    for _, written in waiting:
        written(error)
