"""Batches being appended to the log, and their results."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.broker.transactions.admission import TransactionAdmission
from posthouse.model.errors import InvalidRecord, PosthouseError
from posthouse.model.ids import PartitionId
from posthouse.model.topic_config import CompressionType, TopicConfig
from posthouse.model.topics import Topic
from posthouse.records.batch import BatchHeader, parse_header, validate_produced
from posthouse.records.recompression import STORED_CODEC, level_of, recompressed
from posthouse.records.spans import check_keys
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Operation, Run
from posthouse.storage.outcomes import Outcome


class Opened(NamedTuple):
    """A batch in the form in which it is stored."""

    batch: memoryview
    header: BatchHeader


def opened(batch: memoryview, config: TopicConfig) -> Opened:
    """The batch in its stored form. Raises if the topic must not have it."""
    header = validate_produced(batch, max_bytes=config.max_message_bytes)
    if config.compression_type is not CompressionType.PRODUCER:
        codec = STORED_CODEC[config.compression_type]
        if header.codec is not codec:
            limit, level = config.max_message_bytes, level_of(config, codec)
            batch = memoryview(recompressed(batch, header, codec, max_bytes=limit, level=level))
            header = parse_header(batch)
    if config.is_compacted:
        check_keys(batch, header)
    return Opened(batch, header)


@dataclass(slots=True)
class Produced:
    """One batch to append. The bytes must be writable: offsets are stamped in place."""

    topic: Topic
    partition: int
    batch: memoryview
    runs: Sequence[Run] = ()
    """References to its records, committed with it."""
    opened: Opened | PosthouseError | None = None
    """None if the batch has not been opened yet."""


@dataclass(slots=True)
class Appended:
    """The result of an append. `append_time` is -1 if the records keep their producer's timestamps."""

    base_offset: int
    log_start: int
    append_time: int


class Appending:
    """One call of `LogWriter.append`: its batches, the operations committed with them, and their results.

    Not a future of its own, because one is created per produce request and each future costs an iteration of
    the event loop: a caller awaits `future` and passes its result to `results`.
    """

    __slots__ = ("_appends", "_named", "_verdicts", "admission", "future", "referred", "together")

    def __init__(self, together: Sequence[Operation] = ()) -> None:
        self._appends: list[Append] = []
        self._verdicts: list[int | PosthouseError] = []
        """For each batch, in order: its append time if it was accepted, otherwise the error."""
        self._named: set[PartitionId] | None = None
        self.together = together
        """Operations that become durable with the batches."""
        self.admission: TransactionAdmission | None = None
        """The transaction of the batches; its changed state is stored with them."""
        self.referred: Callable[[], None] | None = None
        """Called when the references among `together` are durable."""
        self.future: asyncio.Future[list[Outcome]] | None = None
        """Done when everything that was accepted is durable; None if no batch was accepted."""

    def accept(self, append: Append, append_time: int) -> None:
        self._appends.append(append)
        self._verdicts.append(append_time)

    def check_only_one(self, partition: PartitionId) -> None:
        """Raises if the partition was named before: storage takes one batch per partition in a commit."""
        if self._named is None:
            self._named = set()
        if partition in self._named:
            raise InvalidRecord(f"{partition} is named twice in one request")
        self._named.add(partition)

    def refuse(self, error: PosthouseError) -> None:
        self._verdicts.append(error)

    def refuse_all(self, error: PosthouseError) -> None:
        """Storage refused the commit: refuse every accepted batch."""
        self._verdicts = [error if isinstance(each, int) else each for each in self._verdicts]

    def commit(self, storage: Storage) -> None:
        """Commit the accepted batches. Raises what storage raises."""
        operations: list[Operation] = [*self._appends, *self.together]
        if not operations:
            return
        if self.admission is not None:
            operations += self.admission.puts()
        self.future = storage.commit(operations)
        if self.admission is not None:
            if self.future.done():
                self._admitted(self.future)
            else:
                self.future.add_done_callback(self._admitted)
        if self.referred is not None:
            # Always by a callback, as in waves, so that queues see commits in order even if the future is
            # already done.
            self.future.add_done_callback(self._referred)

    def _admitted(self, done: asyncio.Future[list[Outcome]]) -> None:
        if self.admission is not None and _has_succeeded(done):
            self.admission.durable()

    def _referred(self, done: asyncio.Future[list[Outcome]]) -> None:
        if self.referred is not None and _has_succeeded(done):
            self.referred()

    def results(self, outcomes: Sequence[Outcome]) -> list[Appended | PosthouseError]:
        """One entry per batch, in order: its offset, or why it was refused."""
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
        """Wait for the results. Raises Unavailable if storage could not write the batches.

        Cancelling the caller does not cancel the commit: queues and transactions need its result.
        """
        outcomes = [] if self.future is None else await asyncio.shield(self.future)
        if self.referred is not None:
            await asyncio.sleep(0)  # the callback of a future that is already done runs in the next iteration
        return self.results(outcomes)


def _has_succeeded(done: asyncio.Future[list[Outcome]]) -> bool:
    return not done.cancelled() and done.exception() is None
