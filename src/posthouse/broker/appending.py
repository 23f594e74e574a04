"""Batches on their way into the log, and what became of each."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.broker.long_poll import LongPoll
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
    """What refers to its records."""
    opened: Opened | PosthouseError | None = None
    """None where nobody has looked into it yet."""


@dataclass(slots=True)
class Appended:
    """Where a batch went. `append_time` is -1 where the records keep their producer's timestamps."""

    base_offset: int
    log_start: int
    append_time: int


class Appending:
    """One call of `Broker.append`.

    Not a future of its own, because this is made for every produce request and each future costs a turn
    of the event loop: whoever waits for `future` passes what it brought to `results`.
    """

    __slots__ = (
        "_appends",
        "_long_poll",
        "_named",
        "_positions",
        "_results",
        "admission",
        "future",
        "referred",
        "together",
    )

    def __init__(self, long_poll: LongPoll) -> None:
        self._long_poll = long_poll
        self._appends: list[Append] = []
        self._positions: list[int] = []
        self._results: list[Appended | PosthouseError] = []
        self._named: set[PartitionId] | None = None
        self.admission: TransactionAdmission | None = None
        """The transaction that the batches belong to; what it has to store, is stored with them."""
        self.together: list[Operation] = []
        """What becomes durable with the batches."""
        self.referred: Callable[[], None] | None = None
        """Called when the references among that are durable."""
        self.future: asyncio.Future[list[Outcome]] | None = None
        """Done when everything that was accepted is durable; None if nothing was accepted."""

    def accept(self, append: Append, append_time: int) -> None:
        self._positions.append(len(self._results))
        self._appends.append(append)
        self._results.append(Appended(-1, -1, append_time))

    def check_only_one(self, partition: PartitionId) -> None:
        """Raises where a partition is named again: storage takes one batch for each at a time."""
        if self._named is None:
            self._named = set()
        if partition in self._named:
            raise InvalidRecord(f"{partition} is named twice in one request")
        self._named.add(partition)

    def refuse(self, error: PosthouseError) -> None:
        self._results.append(error)

    def commit(self, storage: Storage) -> None:
        if not self._appends:
            return
        operations: list[Operation] = [*self._appends, *self.together]
        if self.admission is not None:
            operations += self.admission.puts()
        try:
            self.future = storage.commit(operations)
        except PosthouseError as error:
            for position in self._positions:
                self._results[position] = error
            self._appends.clear()
            self._positions.clear()
        else:
            if self.referred is not None:
                self.future.add_done_callback(self._committed)

    def _committed(self, done: asyncio.Future[list[Outcome]]) -> None:
        """Queues hear of it in the order of commits, and even if nobody asks for the results."""
        if not done.cancelled() and done.exception() is None:
            self._tell_of_references()

    def _tell_of_references(self) -> None:
        referred, self.referred = self.referred, None
        if referred is not None:
            referred()

    def results(self, outcomes: list[Outcome]) -> list[Appended | PosthouseError]:
        """One entry per batch, in order: where it went, or why it was refused."""
        if outcomes and self.admission is not None:
            self.admission.durable()
        if outcomes:
            self._tell_of_references()
        results = self._results
        arrived = self._long_poll.arrived
        for position, append, outcome in zip(self._positions, self._appends, outcomes, strict=False):
            if outcome.refusal is not None:
                results[position] = outcome.refusal
                continue
            appended = results[position]
            assert isinstance(appended, Appended)
            appended.base_offset = outcome.base_offset
            appended.log_start = outcome.log_start
            arrived(append.partition, append.header.length)
        return results

    async def wait(self) -> list[Appended | PosthouseError]:
        """For callers that are not in a hurry. Raises Unavailable if storage could not keep the batches."""
        return self.results(await self.future if self.future is not None else [])
