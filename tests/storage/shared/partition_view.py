"""What a broker knows of the logs without asking, and its commits."""

import asyncio
from collections.abc import Mapping, Sequence

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.storage.bounds import Bounds
from posthouse.storage.operations import Operation, Trim
from posthouse.storage.outcomes import Outcome
from posthouse.storage.producers import AbortedTransaction, Producer
from tests.storage.shared.shared_logs import SharedLogs


class View:
    def __init__(self, logs: SharedLogs) -> None:
        self._logs = logs
        self._bounds: dict[PartitionId, Bounds] = {}
        self._ids: dict[PartitionId, int] = {}

    @property
    def topics(self) -> Mapping[TopicId, Topic]:
        return self._logs.topics

    def bounds(self, partition: PartitionId) -> Bounds:
        return self._bounds[partition]

    def size(self, partition: PartitionId) -> int:
        raise NotImplementedError

    def aborted(self, partition: PartitionId, start: int, end: int) -> list[AbortedTransaction]:
        return []

    def producers(self, partition: PartitionId) -> dict[int, Producer]:
        return {}

    async def refresh(self, partitions: Sequence[PartitionId] = (), *, with_producers: bool = False) -> None:
        found = await self._logs.connection.execute(
            "SELECT id, topic, partition, start, next, coalesce((SELECT min(open_since) FROM producer "
            "WHERE log = log.id AND open_since >= 0), next) FROM log"
        )
        for id, topic, index, start, end, stable in await found.fetchall():
            partition = PartitionId(TopicId(topic.bytes), index)
            self._bounds[partition] = Bounds(start, end, stable)
            self._ids[partition] = id

    async def refresh_definitions(self) -> None:
        """No-op: no other broker changes them."""

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        return asyncio.ensure_future(self._commit(operations))

    async def _commit(self, operations: Sequence[Operation]) -> list[Outcome]:
        for each in operations:
            assert isinstance(each, Trim)
            await self._logs.trim(self._ids[each.partition], each.offset)
        await self.refresh()
        return [Outcome(-1, self._bounds[each.partition].start) for each in operations]  # type: ignore[union-attr]
