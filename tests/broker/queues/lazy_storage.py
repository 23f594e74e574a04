"""A storage in memory that takes its time, can be full, and leaves behind what a crash would leave."""

import asyncio
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from posthouse.model.clock import Clock
from posthouse.model.errors import StorageClosed, StorageFenced, StorageFull
from posthouse.model.ids import PartitionId
from posthouse.storage.bounds import Slice
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Append, Operation, Refer
from posthouse.storage.outcomes import Outcome


class LazyStorage(MemoryStorage):
    """What is committed becomes durable `turns` turns of the event loop later, or when `gate` opens.

    While it `is_full` commits fail, all that wait together, as those of a journal do.
    """

    def __init__(self, clock: Clock, turns: int = 1) -> None:
        super().__init__(clock)
        self.turns = turns
        self.is_full = False
        self.is_fenced = False
        self.gate: asyncio.Event | None = None
        """While it is closed, nothing becomes durable."""
        self.read_gate: asyncio.Event | None = None
        self.after_flush: Callable[[], None] | None = None
        """Called before anybody hears what became of commits."""
        self.reads = 0
        self.commits = 0
        self._waiting: list[tuple[Sequence[Operation], asyncio.Future[list[Outcome]]]] = []
        self._flushing: asyncio.Task[None] | None = None

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        self._check_open()
        if self.is_fenced:
            raise StorageFenced("as if a sync had failed")
        self.commits += 1
        for operation in operations:
            self._refusal(operation)
        done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._waiting.append((list(operations), done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        return done

    async def _flush(self) -> None:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.gate is not None:
            await self.gate.wait()
        self._flushing = None
        waiting, self._waiting = self._waiting, []
        for operations, done in waiting:
            if self.is_full or self._closed:
                if not done.done():
                    closed = StorageClosed("the power is off")
                    done.set_exception(closed if self._closed else StorageFull("the disk is full"))
                continue
            committed = super().commit(operations)
            error = committed.exception()
            if done.done():
                continue
            if error is None:
                done.set_result(committed.result())
            else:
                done.set_exception(error)
        if self.after_flush is not None:
            self.after_flush()

    @property
    def is_idle(self) -> bool:
        return self._flushing is None

    async def read(self, partition: PartitionId, offset: int, max_bytes: int, **options: Any) -> Slice:
        self.reads += 1
        found = await super().read(partition, offset, max_bytes, **options)
        await asyncio.sleep(0)
        if self.read_gate is not None:
            await self.read_gate.wait()
        return found

    def left_behind(self, unconfirmed: int = 0) -> "LazyStorage":
        """What the next process finds; of what nobody was told to be durable, the first few commits."""
        after = LazyStorage(self._clock, self.turns)
        after._topics = dict(self._topics)
        after._logs = deepcopy(self._logs)
        after._cluster_id = self._cluster_id
        after._state = deepcopy(self._state)
        if not self.is_full:
            for operations, _ in self._waiting[:unconfirmed]:
                MemoryStorage.commit(after, _copied_all(operations))
        return after


def _copied_all(operations: Sequence[Operation]) -> list[Operation]:
    """Batches are stamped in place, and those of the process that died are not to be."""
    memo: dict[int, Append] = {}
    return [_copied(operation, memo) for operation in operations]


def _copied(operation: Operation, memo: dict[int, Append]) -> Operation:
    if isinstance(operation, Append):
        copy = replace(operation, batch=memoryview(bytearray(operation.batch)))
        memo[id(operation)] = copy
        return copy
    if isinstance(operation, Refer):
        runs = [replace(run, append=memo.get(id(run.append), run.append)) for run in operation.runs]
        return replace(operation, runs=runs)
    return operation
