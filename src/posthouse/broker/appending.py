"""Batches on their way into the log, and what became of each."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.broker.traffic import TopicTraffic
from posthouse.broker.transactions.admission import TransactionAdmission
from posthouse.model.errors import InvalidRecord, PosthouseError
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.records.batch import BatchHeader
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Operation, Run
from posthouse.storage.outcomes import Outcome


class Opened(NamedTuple):
    """A batch as it is to be stored."""

    batch: memoryview
    header: BatchHeader


@dataclass(slots=True)
class Produced:
    """One batch on its way in. The bytes must be writable: offsets are stamped in place."""

    topic: Topic
    partition: int
    batch: memoryview
    runs: Sequence[Run] = ()
    """References to its records, committed with it."""
    opened: Opened | PosthouseError | None = None
    """None if the batch has not been opened yet."""


@dataclass(slots=True)
class Appended:
    """Where a batch went. `append_time` is -1 where the records keep their producer's timestamps."""

    base_offset: int
    log_start: int
    append_time: int


class Appending:
    """One call of `LogWriter.append`: its batches, what is committed with them, and what became of them.

    Not a future of its own, because one is made for every produce request and each future costs a turn of
    the event loop: a caller waits for `future` and passes its result to `results`.
    """

    __slots__ = ("_appends", "_named", "_traffic", "_verdicts", "admission", "future", "referred", "together")

    def __init__(self, together: Sequence[Operation] = ()) -> None:
        self._appends: list[Append] = []
        self._traffic: list[TopicTraffic] = []
        """Of the topic of each append."""
        self._verdicts: list[int | PosthouseError] = []
        """For each batch, in order: its append time if it was accepted, otherwise why it was not."""
        self._named: set[PartitionId] | None = None
        self.together = together
        """Operations that become durable with the batches."""
        self.admission: TransactionAdmission | None = None
        """The transaction that the batches belong to; what it has to store is stored with them."""
        self.referred: Callable[[], None] | None = None
        """Called when the references among `together` are durable."""
        self.future: asyncio.Future[list[Outcome]] | None = None
        """Done when everything that was accepted is durable; None if nothing was accepted."""

    def accept(self, append: Append, append_time: int, traffic: TopicTraffic) -> None:
        self._appends.append(append)
        self._traffic.append(traffic)
        self._verdicts.append(append_time)

    def check_only_one(self, partition: PartitionId) -> None:
        """Raises where a partition is named again: storage takes one batch for each at a time."""
        if self._named is None:
            self._named = set()
        if partition in self._named:
            raise InvalidRecord(f"{partition} is named twice in one request")
        self._named.add(partition)

    def refuse(self, error: PosthouseError) -> None:
        self._verdicts.append(error)

    def refuse_all(self, error: PosthouseError) -> None:
        """Storage does not take the commit: every batch that was accepted is refused after all."""
        self._verdicts = [error if isinstance(each, int) else each for each in self._verdicts]

    def commit(self, storage: Storage) -> None:
        """Raises what storage raises."""
        operations: list[Operation] = [*self._appends, *self.together]
        if not operations:
            return
        if self.admission is not None:
            operations += self.admission.puts()
        self.future = storage.commit(operations)
        for append, traffic in zip(self._appends, self._traffic, strict=True):
            if append.base_offset >= 0:  # else it was there already, or is refused
                traffic.records_in += append.header.count
                traffic.bytes_in += append.header.length
        if self.admission is not None:
            if self.future.done():
                self._admitted(self.future)
            else:
                self.future.add_done_callback(self._admitted)
        if self.referred is not None:
            # Always by a callback, as waves do: queues hear of commits in their order, also where storage
            # returns futures that are done.
            self.future.add_done_callback(self._referred)

    def _admitted(self, done: asyncio.Future[list[Outcome]]) -> None:
        if self.admission is not None and _has_succeeded(done):
            self.admission.durable()

    def _referred(self, done: asyncio.Future[list[Outcome]]) -> None:
        if self.referred is not None and _has_succeeded(done):
            self.referred()

    def results(self, outcomes: Sequence[Outcome]) -> list[Appended | PosthouseError]:
        """One entry per batch, in order: where it went, or why it was refused."""
        results: list[Appended | PosthouseError] = []
        following = iter(outcomes)
        for verdict in self._verdicts:
            if isinstance(verdict, int):
                outcome = next(following)
                refusal = outcome.refusal
                results.append(
                    Appended(outcome.base_offset, outcome.log_start, verdict) if refusal is None else refusal
                )
            else:
                results.append(verdict)
        return results

    async def wait(self) -> list[Appended | PosthouseError]:
        """For callers that are not in a hurry. Raises Unavailable if storage could not keep the batches.

        A caller that is cancelled does not cancel the commit, of which queues and transactions must hear.
        """
        outcomes = [] if self.future is None else await asyncio.shield(self.future)
        if self.referred is not None:
            await asyncio.sleep(0)  # the callback of a future that was done at once runs in the next turn
        return self.results(outcomes)


def _has_succeeded(done: asyncio.Future[list[Outcome]]) -> bool:
    return not done.cancelled() and done.exception() is None
