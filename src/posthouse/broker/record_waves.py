"""Single records of many clients, written in waves: all records of one turn of the event loop become durable
in one commit, as one batch for each partition.

For protocols whose clients send one record at a time. Waves are written in the order in which they began, and
the records of a partition in the order in which they were added.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.log_writer import Appending
from posthouse.broker.record_limits import check_record
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.records.builder import BatchBuilder
from posthouse.storage.outcomes import Outcome

Written: TypeAlias = Callable[[int | PosthouseError], None]
"""Told the offset of a record that is durable, or why it was refused."""

WAVE_BYTES = 1024 * 1024
"""A larger wave is written at once."""


class _Batch:
    __slots__ = ("builder", "partition", "topic", "written")

    def __init__(self, topic: Topic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.builder = BatchBuilder()
        self.written: list[Written] = []

    def has_room(self, size: int) -> bool:
        builder = self.builder
        return not builder.count or builder.size_estimate + size <= self.topic.config.max_message_bytes

    def produced(self) -> Produced:
        batch = memoryview(self.builder.build())
        return Produced(self.topic, self.partition, batch, has_own_times=True)

    def answer(self, result: Appended | PosthouseError) -> None:
        for number, written in enumerate(self.written):
            written(result.base_offset + number if isinstance(result, Appended) else result)


class RecordWaves:
    """Owned by the event loop."""

    def __init__(self, append: Callable[[Sequence[Produced]], Appending]) -> None:
        self._append = append
        self._batches: dict[tuple[TopicId, int], _Batch] = {}
        self._size = 0
        self._is_planned = False

    def add(
        self,
        topic: Topic,
        partition: int,
        key: bytes | None,
        value: bytes,
        headers: bytes,
        timestamp: int,
        written: Written,
    ) -> None:
        """`headers` are encoded as in a batch, `timestamp` is the broker's own time. Raises
        UnknownPartition, RecordTooLarge and MissingKeys."""
        topic.existing_partition(partition)
        size = check_record(topic, key, value, headers)
        batch = self._batches.get((topic.id, partition))
        if batch is None or batch.topic is not topic or not batch.has_room(size):
            if batch is not None:
                self._write()
            batch = self._batches[topic.id, partition] = _Batch(topic, partition)
        batch.builder.add_raw(key, value, headers, timestamp)
        batch.written.append(written)
        self._size += size
        if self._size > WAVE_BYTES:
            self._write()
        elif not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._finish)

    def _finish(self) -> None:
        self._is_planned = False
        if self._batches:
            self._write()

    def _write(self) -> None:
        batches = list(self._batches.values())
        self._batches = {}
        self._size = 0
        appending = self._append([batch.produced() for batch in batches])

        def written(future: asyncio.Future[list[Outcome]] | None) -> None:
            outcomes: Sequence[Outcome] = ()
            if future is not None:
                error = future.exception()
                if isinstance(error, PosthouseError):
                    appending.refuse_all(error)
                elif error is not None:
                    raise error
                else:
                    outcomes = future.result()
            for batch, result in zip(batches, appending.results(outcomes), strict=True):
                batch.answer(result)

        if appending.future is None:
            written(None)
        else:
            appending.future.add_done_callback(written)
