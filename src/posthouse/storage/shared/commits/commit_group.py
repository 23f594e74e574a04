"""A group of commits as the arguments of the SQL function `commit_group`, and its answer as outcomes."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from enum import IntEnum
from typing import Any, NamedTuple

from posthouse.model.errors import (
    NotLeader,
    OutOfOrderSequence,
    PosthouseError,
    ProducerFenced,
    UnknownPartition,
)
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import Scope
from posthouse.records.batch import LEADER_EPOCH, stamp
from posthouse.records.control import is_commit
from posthouse.records.references import Reference, pack_references
from posthouse.storage.operations import Append, Operation, Put, Refer, Run, Trim
from posthouse.storage.outcomes import PUT_DONE, OperationRefused, Outcome
from posthouse.storage.shared.array_text import array_text
from posthouse.storage.shared.logs.shared_log import SharedLog, TailBatch, Tails
from posthouse.storage.spaces import CLUSTER_WIDE

_REQUIRED, _TRANSACTIONAL, _CONTROL, _COMMITS, _FOLLOWS_FAILED, _HAS_REFERRAL = 1, 2, 4, 8, 16, 32


class OperationKind(IntEnum):
    APPEND = 0
    REFER = 1
    TRIM = 2


class CommitVerdict(IntEnum):
    DONE = 0
    DUPLICATE = 1
    """Or a Refer of which no reference is left."""
    FENCED = 2
    OUT_OF_ORDER = 3
    EPOCH_NOT_FROM_0 = 4
    VOID = 5
    """Another operation of the commit was refused."""
    OF_ANOTHER = 6
    """Only the broker that serves its scope of namespaces appends to this log outside of transactions, and
    trims it. A transaction of another broker that is committed there needs a referral."""
    DELETED = 7
    NOT_ADMITTED = 8
    """Only the broker that coordinates this transaction appends to it, or it has ended."""


class Answer(NamedTuple):
    """What `commit_group` returns: one item for each operation that is not a Put."""

    verdicts: Sequence[int]
    bases: Sequence[int]
    starts: Sequence[int]
    details: Sequence[int]
    first_opens: Sequence[int | None] | None = None
    """None if none of the logs has an open transaction."""


class PendingCommit:
    """One commit from the call until it is answered."""

    __slots__ = ("done", "logs", "namespaces", "number", "operations", "scopes", "size")

    def __init__(
        self,
        operations: Sequence[Operation],
        size: int,
        done: asyncio.Future[list[Outcome]],
        logs: Mapping[PartitionId, SharedLog],
        scopes: Set[Scope] = frozenset(),
        namespaces: frozenset[Scope] = frozenset(),
    ) -> None:
        self.operations = operations
        self.scopes = scopes
        """Those that its operations need."""
        self.namespaces = namespaces
        """The scopes of namespaces to whose logs it may write: those that the broker serves, and those
        of `scopes`."""
        self.logs = logs
        """Those that it touches: a topic may be deleted while its commits wait."""
        self.number = 0
        """Among the commits of its path."""
        self.size = size
        """Bytes of its batches."""
        self.done = done

    def fail(self, error: PosthouseError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class CommitGroup:
    """Commits that one call of the database makes durable."""

    def __init__(self, commits: Sequence[PendingCommit]) -> None:
        self.commits = commits
        self._logs: dict[PartitionId, SharedLog] = {}
        for commit in commits:
            self._logs.update(commit.logs)
        self.size = sum(commit.size for commit in commits)

        self.scopes = commits[0].namespaces.union(*(commit.scopes for commit in commits))
        """Those that the broker must hold."""
        self.has_operations = any(commit.operations for commit in commits)

    def done(self) -> None:
        """Answer commits without operations."""
        for commit in self.commits:
            if not commit.done.done():
                commit.done.set_result([])

    def operations(self) -> Iterator[Operation]:
        for commit in self.commits:
            yield from commit.operations

    def payload_order(self) -> list[Append]:
        """The batches by log, so that one log's batches lie together."""
        logs = self._logs
        found = [each for each in self.operations() if isinstance(each, Append)]
        found.sort(key=lambda append: logs[append.partition].id)  # stable: in order within a log
        return found

    def arguments(self, places: Mapping[int, tuple[int, int]], failed_before: Mapping[int, int]) -> list[Any]:
        """The arguments from `p_logs` on. By the `id` of the Append, `places` has object number and position
        of each batch, and `failed_before` the sequence that its producer has to send first, because the batch
        with that one failed."""
        logs = self._logs
        touched = sorted({logs[each.partition].id for each in self.operations() if not isinstance(each, Put)})
        log_numbers = {id: number for number, id in enumerate(touched, 1)}
        producers: dict[tuple[int, int], int] = {}
        rows: list[tuple[int, ...]] = []
        refs: list[bytes | None] = []
        admissions: list[bytes | None] = []
        runs: list[tuple[int, int, int, int, int]] = []
        puts: list[tuple[int, Put]] = []
        numbers: dict[int, int] = {}
        """Numbers of the appends, by `id`."""
        for number, commit in enumerate(self.commits, 1):
            for operation in commit.operations:
                if isinstance(operation, Put):
                    puts.append((number, operation))
                    continue
                log = logs[operation.partition]
                at = log_numbers[log.id]
                refs.append(None)
                admissions.append(None)
                if isinstance(operation, Append):
                    admissions[-1] = operation.admission
                    numbers[id(operation)] = len(rows) + 1
                    header = operation.header
                    producer = 0
                    if header.producer_id >= 0:
                        producer = producers.setdefault((log.id, header.producer_id), len(producers) + 1)
                    place, position = places[id(operation)]
                    flags, failed = _flags(operation), 0
                    if failed_before and id(operation) in failed_before:
                        flags |= _FOLLOWS_FAILED
                        failed = failed_before[id(operation)]
                    rows.append(
                        (
                            number,
                            OperationKind.APPEND,
                            at,
                            header.last_offset_delta + 1,
                            place,
                            position,
                            header.length,
                            header.max_timestamp,
                            producer,
                            header.producer_epoch,
                            header.base_sequence,
                            header.last_sequence,
                            flags,
                            failed,
                        )
                    )
                elif isinstance(operation, Refer):
                    refs[-1] = _packed(operation)
                    rows.append((number, OperationKind.REFER, at, *_NOTHING, 0))
                    for run in operation.runs:
                        append, first = _referred(run, numbers)
                        runs.append((len(rows), append, first, run.count, run.expires_ms))
                else:
                    rows.append((number, OperationKind.TRIM, at, *_NOTHING, operation.offset))
        return [
            array_text(touched),
            array_text(log for log, _ in producers),
            array_text(id for _, id in producers),
            *_columns(rows, 14),
            refs,
            admissions if any(each is not None for each in admissions) else None,
            *_columns(runs, 5),
            array_text(number for number, _ in puts),
            array_text(int(put.space) for _, put in puts),
            [put.owner for _, put in puts],
            [put.key for _, put in puts],
            [put.value for _, put in puts],
            array_text({int(put.space) for _, put in puts if put.space in CLUSTER_WIDE}),
        ]

    def of_other_brokers(self, answer: Answer) -> list[Operation]:
        """Operations that are refused because another broker must do them."""
        operations = (each for each in self.operations() if not isinstance(each, Put))
        return [
            each
            for each, verdict in zip(operations, answer.verdicts, strict=True)
            if verdict in (CommitVerdict.OF_ANOTHER, CommitVerdict.NOT_ADMITTED)
        ]

    def apply(
        self, answer: Answer, tails: Tails, now_ms: int, *, keeps_producers: bool
    ) -> list[tuple[PartitionId, int]]:
        """Bring logs up to date and answer the commits. Returns what became readable: partition and bytes."""
        arrived: list[tuple[PartitionId, int]] = []
        at = 0
        replayed_ms = now_ms if keeps_producers else None
        results: list[tuple[PendingCommit, list[Outcome] | OperationRefused]] = []
        for commit in self.commits:
            outcomes: list[Outcome] = []
            void: OperationRefused | None = None
            for operation in commit.operations:
                if isinstance(operation, Put):
                    outcomes.append(PUT_DONE)
                    continue
                verdict = answer.verdicts[at]
                outcome = Outcome(answer.bases[at], answer.starts[at])
                log = self._logs[operation.partition]
                if verdict == CommitVerdict.DONE:
                    first_open = None if answer.first_opens is None else answer.first_opens[at]
                    size = _apply(operation, outcome, log, tails, first_open, replayed_ms)
                    if size or isinstance(operation, Trim):  # other brokers are told of the new start
                        arrived.append((operation.partition, size))
                elif isinstance(operation, Append | Trim) and verdict in _REFUSED:
                    refusal = _refusal(operation, log, verdict, answer.details[at])
                    outcome = Outcome(-1, answer.starts[at], refusal)
                    if isinstance(operation, Append) and void is None and _voids(operation, verdict):
                        void = OperationRefused(operation, refusal)
                outcomes.append(outcome)
                at += 1
            results.append((commit, outcomes if void is None else void))
        for commit, result in results:
            if commit.done.done():
                continue  # its caller was cancelled
            if isinstance(result, OperationRefused):
                commit.done.set_exception(result)
            else:
                commit.done.set_result(result)
        return arrived


_REFUSED = (
    CommitVerdict.FENCED,
    CommitVerdict.OUT_OF_ORDER,
    CommitVerdict.EPOCH_NOT_FROM_0,
    CommitVerdict.OF_ANOTHER,
    CommitVerdict.DELETED,
    CommitVerdict.NOT_ADMITTED,
)
_NOTHING = (0, 0, 0, 0, -1, 0, -1, -1, -1, 0)
"""Columns between log and offset of an operation that is not an append."""


def _voids(append: Append, verdict: int) -> bool:
    """Whether nothing of the commit counts because the batch is refused."""
    return append.required or (verdict == CommitVerdict.OF_ANOTHER and append.header.is_control)


def _referred(run: Run, numbers: Mapping[int, int]) -> tuple[int, int]:
    """The number of the append that a run belongs to, and its first record there; 0 with an offset. An append
    of an earlier call has its offset already, or was refused (-1)."""
    if run.append is None:
        return 0, run.first
    number = numbers.get(id(run.append))
    if number is not None:
        return number, run.first
    base = run.append.base_offset
    return (0, base + run.first) if base >= 0 else (-1, run.first)


def _flags(append: Append) -> int:
    header = append.header
    flags = _REQUIRED if append.required else 0
    if header.is_transactional:
        flags |= _TRANSACTIONAL
    if header.is_control:
        flags |= _CONTROL | (_COMMITS if is_commit(append.batch) else 0)
        if append.has_referral:
            flags |= _HAS_REFERRAL
    return flags


def _packed(refer: Refer) -> bytes:
    return pack_references(
        [Reference(run.partition, run.first, run.count, run.expires_ms, run.size) for run in refer.runs]
    )


def _apply(
    operation: Operation,
    outcome: Outcome,
    log: SharedLog,
    tails: Tails,
    first_open: int | None,
    replayed_ms: int | None,
) -> int:
    """Returns the bytes that were added to the log. `replayed_ms` is None if producers are not kept."""
    if isinstance(operation, Trim):
        log.trim(outcome.log_start)
        return 0
    base = outcome.base_offset
    append: Append | None
    if isinstance(operation, Append):
        operation.base_offset = base
        append = operation
    else:
        assert isinstance(operation, Refer)
        append = operation.as_append()
        assert append is not None
    stamp(append.batch, base, LEADER_EPOCH)
    header = append.header._replace(base_offset=base, leader_epoch=LEADER_EPOCH)
    if header.producer_id >= 0 and replayed_ms is not None:
        aborts = header.is_control and not is_commit(append.batch)
        log.producers.replay(header, base, replayed_ms, aborts=aborts)
    tails.add(log, TailBatch(append.batch, header), first_open)
    if outcome.log_start > log.start:
        log.trim(outcome.log_start)
    return header.length


def _refusal(operation: Append | Trim, log: SharedLog, verdict: int, detail: int) -> PosthouseError:
    if verdict == CommitVerdict.OF_ANOTHER:
        return NotLeader(f"{log.name} feeds queues: only the broker that serves them writes to it")
    if verdict == CommitVerdict.DELETED:
        return UnknownPartition(f"the topic of {log.name} is deleted")
    assert isinstance(operation, Append)
    header = operation.header
    producer = header.producer_id
    if verdict == CommitVerdict.NOT_ADMITTED:
        return NotLeader(f"another broker coordinates the transaction of producer {producer}")
    if verdict == CommitVerdict.FENCED:
        return ProducerFenced(f"producer {producer} has epoch {detail}; {header.producer_epoch} is fenced")
    if verdict == CommitVerdict.OUT_OF_ORDER:
        return OutOfOrderSequence(
            f"producer {producer} sent sequence {header.base_sequence} instead of {detail}"
        )
    return OutOfOrderSequence(f"a new epoch of producer {producer} starts at 0, not {header.base_sequence}")


def _columns(rows: Sequence[tuple[int, ...]], count: int) -> list[str]:
    if not rows:
        return ["{}"] * count
    return [array_text(map(int, column)) for column in zip(*rows, strict=True)]
