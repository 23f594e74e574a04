"""Pending commits: from the call on the event loop to the flusher and back.

A batch gets its offset and its position when it is committed, and becomes valid when it is durable. If a
write fails, every placed batch that is not durable is void, because later positions depend on earlier ones.
"""

import asyncio
from collections.abc import Callable, Sequence

from posthouse.model.clock import Clock
from posthouse.model.errors import OutOfOrderSequence, PosthouseError, ProducerFenced, StorageFenced
from posthouse.records.batch import LEADER_EPOCH, stamp
from posthouse.storage.arrivals import Arrived
from posthouse.storage.files.commits.background_worker import BackgroundWorker
from posthouse.storage.files.commits.checkpoints import Checkpoints
from posthouse.storage.files.commits.flusher import Commit, Flusher, Step, Trimming, Written
from posthouse.storage.files.segments.logs import Logs
from posthouse.storage.files.segments.partition_log import Placement, Repetition
from posthouse.storage.operations import Append, Operation, Put, Refer, Trim
from posthouse.storage.outcomes import PUT_DONE, OperationRefused, Outcome

_MUCH_UNWRITTEN = 4 * 1024 * 1024
"""Enough to keep the disk busy."""


class Commits:
    """Owned by the event loop."""

    def __init__(
        self,
        clock: Clock,
        logs: Logs,
        flusher: Flusher,
        checkpoints: Checkpoints,
        background: BackgroundWorker,
        *,
        on_fenced: Callable[[StorageFenced], None],
    ) -> None:
        self._clock = clock
        self._logs = logs
        self._flusher = flusher
        self._checkpoints = checkpoints
        self._background = background
        self._on_fenced = on_fenced
        self._gathered: list[Commit] = []
        self._subscribers: list[Arrived] = []
        self._generation = 0
        self.unwritten_bytes = 0

    @property
    def is_behind(self) -> bool:
        return self.unwritten_bytes > _MUCH_UNWRITTEN

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._flusher.start(self._on_written)

    def subscribe(self, arrived: Arrived) -> None:
        self._subscribers.append(arrived)

    def add(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        refused: dict[int, Outcome] = {}
        """Refused operations, by `id`."""
        for operation in operations:
            refusal = self._refusal(operation)
            if refusal is not None:
                assert isinstance(operation, Append)
                if operation.required:
                    return self._void(OperationRefused(operation, refusal))
                refused[id(operation)] = Outcome(-1, self._logs[operation.partition].start, refusal)
        now = self._clock.now_ms()
        steps: list[Step] = []
        size = 0
        for operation in operations:
            if refused and id(operation) in refused:
                steps.append(refused[id(operation)])
            elif isinstance(operation, Append):
                placed = self._place(operation, now)
                if isinstance(placed, Placement):
                    size += operation.header.length
                steps.append(placed)
            elif isinstance(operation, Refer):
                append = operation.as_append()
                if append is None:
                    owner = self._logs[operation.partition]
                    steps.append(Repetition(owner, owner.next_offset))
                else:
                    steps.append(self._place(append, now))
                    size += append.header.length
            elif isinstance(operation, Trim):
                owner = self._logs[operation.partition]
                # Bound the offset now, not when it is written: replay must come to the same result.
                steps.append(Trimming(owner, min(operation.offset, owner.next_offset)))
            else:
                steps.append(operation)
        done: asyncio.Future[list[Outcome]] = self._loop.create_future()
        if not self._gathered:
            self._loop.call_soon(self._submit)
        self._gathered.append(Commit(steps, size, self._generation, done))
        self.unwritten_bytes += size
        return done

    def _place(self, append: Append, now_ms: int) -> Placement | Repetition:
        placed = self._logs[append.partition].place(append.batch, append.header, now_ms)
        if isinstance(placed, Placement):
            stamp(append.batch, placed.base_offset, LEADER_EPOCH)
            append.base_offset = placed.base_offset
        return placed

    def _refusal(self, operation: Operation) -> PosthouseError | None:
        """Why the operation is refused, or None. Called before any operation of the commit has had an
        effect."""
        if isinstance(operation, Put):
            return None
        owner = self._logs[operation.partition]
        if isinstance(operation, Append) and operation.header.producer_id >= 0:
            try:
                owner.producers.repeated(operation.header)
            except (ProducerFenced, OutOfOrderSequence) as error:
                # The error outlives this call and must not keep its stack frames alive.
                return error.with_traceback(None)
        return None

    def _void(self, error: OperationRefused) -> asyncio.Future[list[Outcome]]:
        done: asyncio.Future[list[Outcome]] = self._loop.create_future()
        done.set_exception(error)
        return done

    def _submit(self) -> None:
        """Submit everything that this iteration of the event loop committed, as one group."""
        if self._gathered:
            self._flusher.submit(self._gathered)
            self._gathered = []

    async def drain(self) -> None:
        """Return when everything that was committed so far is written or has failed."""
        self._submit()
        await self._flusher.perform(lambda: None)

    def _on_written(self, written: Written) -> None:
        self._loop.call_soon_threadsafe(self._written, written)

    def _written(self, written: Written) -> None:
        if written.error is not None:
            self._roll_back(written, written.error)
            return
        size = 0
        for commit in written.commits:
            outcomes = [self._completed(step) for step in commit.steps]
            size += commit.size
            if not commit.done.done():
                commit.done.set_result(outcomes)
        self.unwritten_bytes -= size
        self._checkpoints.written(written.frame, written.journalled, size)
        for arrived in self._subscribers:
            for commit in written.commits:
                for step in commit.steps:
                    if isinstance(step, Placement):
                        arrived(step.log.id, step.header.length)

    def _completed(self, step: Step) -> Outcome:
        if isinstance(step, Put):
            self._checkpoints.state[int(step.space), step.key] = step.value
            return PUT_DONE
        if isinstance(step, Outcome):
            return step
        owner = step.log
        if isinstance(step, Repetition):
            return Outcome(step.base_offset, owner.start)
        self._checkpoints.changed[owner] = None
        if isinstance(step, Placement):
            step.durable()
            return Outcome(step.base_offset, owner.start)
        self._background.remove(owner.trim(step.offset))
        return Outcome(owner.start, owner.start)

    def _roll_back(self, written: Written, error: PosthouseError) -> None:
        if isinstance(error, StorageFenced):
            self._on_fenced(error)
        if written.commits[-1].generation == self._generation:
            self._generation += 1
            for owner in self._logs.values():
                owner.roll_back()
            void, self._gathered = self._gathered, []
        else:
            void = []
        for commit in [*written.commits, *void]:
            self.unwritten_bytes -= commit.size
            if not commit.done.done():
                commit.done.set_exception(error)
