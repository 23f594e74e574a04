"""The functions of commits and of reservations of producer ids, on the tables of the simulated database.

They do what `storage/shared/schema/0001/03_commit.sql` does, operation by operation and in the same order.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from posthouse.records.references import references_batch
from posthouse.storage.spaces import Space
from tests.simulation.cluster.tables import (
    AbortedRow,
    CommitterRow,
    LogRow,
    ObjectRow,
    ProducerRow,
    Raised,
    RunRow,
    Tables,
)

_APPEND, _REFER, _TRIM = 0, 1, 2
_REQUIRED, _TRANSACTIONAL, _CONTROL, _COMMITS, _FOLLOWS_FAILED, _HAS_REFERRAL = 1, 2, 4, 8, 16, 32
_DONE, _DUPLICATE, _FENCED, _OUT_OF_ORDER, _NOT_FROM_0, _VOID, _OF_ANOTHER, _DELETED, _NOT_ADMITTED = range(9)
_OF_ANY = frozenset({1, 5, 13, 14, 19, 33, 11, 12, 27, 28, 29})
"""Spaces of groups, and of namespaces without their names in the keys."""
_OF_TRANSACTIONS = frozenset({2, 3, 7, 26})
_OF_NAMESPACES = frozenset({8, 9, 10, 37})
_REFERENCE_BYTES = 48
_REMEMBERED = 5
_SEQUENCES = 2**31


def numbers(text: str) -> list[int]:
    """Of an array, as PostgreSQL writes it."""
    inner = text[1:-1]
    return [int(each) for each in inner.split(",")] if inner else []


class Operation(NamedTuple):
    commit: int
    kind: int
    log: int
    records: int
    object: int
    pos: int
    size: int
    time: int
    producer: int
    epoch: int
    first: int
    last: int
    flags: int
    offset: int
    refs: bytes | None
    admission: bytes | None


class Reference(NamedTuple):
    op: int
    append: int
    first: int
    records: int
    expires: int


def _may_feed_queues(operation: Operation) -> bool:
    """Whether a broker that does not hold the scope of the log's namespace may write this to it."""
    flags = operation.flags
    is_committing = flags & _COMMITS and not flags & _HAS_REFERRAL
    return operation.kind == _APPEND and bool(flags & _TRANSACTIONAL) and not is_committing


class CommitGroupCall:
    """One call. It changes nothing before all is decided."""

    def __init__(self, tables: Tables, values: Sequence[Any]) -> None:
        self._tables = tables
        (self._holder, self._epoch, self._path, self._number, self._now) = values[:5]
        self._scopes: list[str] = values[5]
        self._payload: bytes | None = values[6]
        self._keys: list[str] = list(values[7])
        self._key_sizes: list[int] = list(values[8])
        log_ids = numbers(values[9])
        self._producer_ids = list(zip(numbers(values[10]), numbers(values[11]), strict=True))
        columns = [numbers(each) for each in values[12:26]]
        refs = values[26]
        admissions = values[27] or [None] * len(refs)
        self._operations = [Operation._make(row) for row in zip(*columns, refs, admissions, strict=True)]
        self._references = [
            Reference(*row) for row in zip(*(numbers(each) for each in values[28:33]), strict=True)
        ]
        spaces = numbers(values[34])
        self._puts = list(zip(numbers(values[33]), spaces, *values[35:38], strict=True))
        self._changed = numbers(values[38])
        self._coordinates = "coordinator" in self._scopes
        self._transacts = any(each.startswith("transactions/") for each in self._scopes)
        kinds = [each.split("/") for each in self._scopes]
        self._namespaces = {int(each[1]) for each in kinds if each[0] == "namespaces"}
        self._logs = [replace(tables.logs[id]) if id in tables.logs else None for id in log_ids]
        self._producers = [tables.producers.get(each) for each in self._producer_ids]
        self._changed_producers: dict[int, None] = {}
        self._transacted: set[int] = set()
        self._trimmed: set[int] = set()
        self._runs: list[tuple[int, RunRow]] = []
        """With the number of the log, and the number of the object in place of its id."""
        self._last_runs: dict[int, int] = {}
        self._aborted: list[tuple[int, AbortedRow]] = []
        self._voided: set[int] = set()
        count = len(self._operations)
        self._verdicts = [_DONE] * count
        self._bases = [-1] * count
        self._starts = [-1] * count
        self._details = [-1] * count

    def run(self) -> tuple[Any, ...]:
        tables = self._tables
        tables.check_lease(self._holder, self._epoch, self._scopes)
        writable = _OF_ANY
        if self._transacts:
            writable |= _OF_TRANSACTIONS
        if self._namespaces:
            writable |= _OF_NAMESPACES
        if not self._coordinates and not {put[1] for put in self._puts} <= writable:
            raise Raised("PH006", "this state is changed by the holder of another scope")
        own = tables.committers.get((self._holder, self._path))
        if own is None or own.number >= self._number:
            raise Raised("PH002", f"commit {self._number} of path {self._path} came too late")
        if own.number < self._number - 1:
            raise Raised("PH002", f"commit {self._number - 1} of path {self._path} is missing")
        referring = [self._logs[each.log - 1] for each in self._operations if each.kind == _REFER]
        if None in referring:
            raise Raised("PH003", "a log does not exist")
        if any(log is not None and not log.is_deleted and self._is_of_another(log) for log in referring):
            raise Raised("PH006", "references are written by the holder of their scope only")
        at = 0
        while at < len(self._operations):
            end = at
            while end < len(self._operations) and self._operations[end].commit == self._operations[at].commit:
                end += 1
            self._commit(range(at, end))
            at = end
        return self._write(own)

    def _commit(self, ops: range) -> None:
        """The operations of one commit. First what is refused, because that may void it."""
        commit = self._operations[ops[0]].commit
        for i in ops:
            operation = self._operations[i]
            self._check_may_write(operation)
            verdict = self._verdicts[i] = self._verdict(i, operation)
            is_left_out = verdict == _OF_ANOTHER and operation.flags & _CONTROL
            if verdict >= _FENCED and (operation.flags & _REQUIRED or is_left_out):
                self._voided.add(commit)
        if commit in self._voided:
            for i in ops:
                if self._verdicts[i] < _FENCED:
                    self._verdicts[i] = _VOID
                self._bases[i] = -1
            return
        for i in ops:
            operation = self._operations[i]
            log = self._logs[operation.log - 1]
            if operation.kind == _APPEND:
                if self._verdicts[i] == _DONE:
                    assert log is not None
                    self._append(i, operation, log)
                self._starts[i] = -1 if log is None else log.start
            elif operation.kind == _REFER:
                assert log is not None
                self._refer(i, operation, log)
            elif self._verdicts[i] != _DONE:
                self._starts[i] = -1 if log is None else log.start
            else:
                assert log is not None
                self._trim(i, operation, log)

    def _check_may_write(self, operation: Operation) -> None:
        flags = operation.flags
        is_own = flags & _CONTROL or (flags & _TRANSACTIONAL and operation.admission is None)
        if is_own and not self._coordinates and not self._transacts:
            raise Raised("PH006", "transactions are written by the holder of their scope")

    def _is_of_another(self, log: LogRow) -> bool:
        if log.namespaces is None or not self._tables.guards_queues:
            return False
        return log.namespaces not in self._namespaces

    def _verdict(self, i: int, operation: Operation) -> int:
        log = self._logs[operation.log - 1]
        if operation.kind != _REFER:
            if log is None or log.is_deleted:
                return _DELETED
            if self._is_of_another(log) and not _may_feed_queues(operation):
                return _OF_ANOTHER
        if operation.admission is not None and not self._is_admitted(operation):
            return _NOT_ADMITTED
        if operation.producer == 0:
            return _DONE
        known = self._producers[operation.producer - 1]
        if known is None:
            if operation.flags & _FOLLOWS_FAILED:
                self._details[i] = operation.offset
                return _OUT_OF_ORDER
            return _DONE
        if operation.epoch < known.epoch:
            self._details[i] = known.epoch
            return _FENCED
        if operation.flags & _CONTROL:
            return _DONE
        if operation.epoch > known.epoch:
            return _DONE if operation.first == 0 else _NOT_FROM_0
        for at in range(0, len(known.batches), 3):
            if known.batches[at : at + 2] == (operation.first, operation.last):
                self._bases[i] = known.batches[at + 2]
                return _DUPLICATE
        expected = (known.batches[-2] + 1) % _SEQUENCES if known.batches else 0
        if operation.first != expected:
            self._details[i] = expected
            return _OUT_OF_ORDER
        return _DONE

    def _is_admitted(self, operation: Operation) -> bool:
        log = self._logs[operation.log - 1]
        if log is None:
            return False
        _, producer = self._producer_ids[operation.producer - 1]
        key = log.topic.bytes + log.partition.to_bytes(4, "big") + producer.to_bytes(8, "big")
        stored = self._tables.state.get((int(Space.ADMISSIONS), key))
        return stored is not None and stored[1] == operation.admission

    def _append(self, i: int, operation: Operation, log: LogRow) -> None:
        base = self._bases[i] = log.next
        log.next += operation.records
        log.bytes += operation.size
        number = self._last_runs.get(operation.log)
        before = None if number is None else self._runs[number][1]
        if (
            number is not None
            and before is not None
            and before.refs is None
            and before.object == operation.object
            and before.pos + before.size == operation.pos
        ):
            grown = replace(
                before,
                last=log.next - 1,
                size=before.size + operation.size,
                max_time=max(before.max_time, operation.time),
            )
            self._runs[number] = (log.id, grown)
        else:
            self._add_run(operation, log, base, operation.size, operation.time, None)
        if operation.producer > 0:
            self._produced(operation, log, base)

    def _add_run(
        self, operation: Operation, log: LogRow, base: int, size: int, time: int, refs: bytes | None
    ) -> None:
        self._last_runs[operation.log] = len(self._runs)
        run = RunRow(
            base=base,
            last=log.next - 1,
            inline=None,
            object=operation.object if refs is None else 0,
            pos=operation.pos if refs is None else 0,
            size=size,
            max_time=time,
            created_ms=self._now,
            refs=refs,
        )
        self._runs.append((log.id, run))

    def _produced(self, operation: Operation, log: LogRow, base: int) -> None:
        at = operation.producer - 1
        known = self._producers[at]
        batches = () if known is None or known.epoch != operation.epoch else known.batches
        open_since = -1 if known is None else known.open_since
        if operation.flags & (_TRANSACTIONAL | _CONTROL):
            self._transacted.add(operation.log)
        if operation.flags & _CONTROL:
            if not operation.flags & _COMMITS and open_since >= 0:
                self._aborted.append((log.id, AbortedRow(base, open_since, self._producer_ids[at][1])))
            open_since = -1
        else:
            if operation.flags & _TRANSACTIONAL and open_since < 0:
                open_since = base
            batches = (*batches[-3 * (_REMEMBERED - 1) :], operation.first, operation.last, base)
        self._producers[at] = ProducerRow(operation.epoch, batches, self._now, open_since)
        self._changed_producers[at] = None

    def _refer(self, i: int, operation: Operation, log: LogRow) -> None:
        """References to a batch that is a duplicate or refused are left out."""
        assert operation.refs is not None
        parts: list[bytes] = []
        total, earliest = 0, None
        own = [each for each in self._references if each.op == i + 1]
        for number, each in enumerate(own):
            if each.append != 0 and (each.append < 0 or self._verdicts[each.append - 1] != _DONE):
                continue
            offset = each.first + (0 if each.append == 0 else self._bases[each.append - 1])
            packed = operation.refs[_REFERENCE_BYTES * number : _REFERENCE_BYTES * (number + 1)]
            parts.append(packed[:20] + offset.to_bytes(8, "big") + packed[28:])
            total += each.records
            if each.expires != 0:
                earliest = each.expires if earliest is None else min(earliest, each.expires)
        base = self._bases[i] = log.next
        self._starts[i] = log.start
        if total == 0:
            self._verdicts[i] = _DUPLICATE
            return
        refs = b"".join(parts)
        size = len(references_batch(refs, base))
        log.next = base + total
        log.bytes += size
        self._add_run(operation, log, base, size, -1 if earliest is None else earliest, refs)

    def _trim(self, i: int, operation: Operation, log: LogRow) -> None:
        base = max(log.start, min(operation.offset, log.next))
        if base > log.start:
            log.bytes = log.bytes * (log.next - base) // (log.next - log.start)
            log.start = base
            self._trimmed.add(operation.log)
        self._bases[i] = self._starts[i] = base

    def _write(self, own: CommitterRow) -> tuple[Any, ...]:
        tables = self._tables
        self._write_runs()
        for id, row in self._aborted:
            tables.aborted.setdefault(id, []).append(row)
        for at in self._changed_producers:
            producer = self._producers[at]
            assert producer is not None
            tables.producers[self._producer_ids[at]] = producer
        for at, log in enumerate(self._logs, 1):
            if log is None:
                continue
            if at in self._transacted:
                opens = [
                    each.open_since
                    for (owner, _), each in tables.producers.items()
                    if owner == log.id and each.open_since >= 0
                ]
                log.first_open = min(opens, default=None)
            tables.logs[log.id] = log
            if at in self._trimmed:
                kept = [each for each in tables.aborted.get(log.id, []) if each.last >= log.start]
                tables.aborted[log.id] = kept
        self._write_state()
        opens_now = [None if each is None else each.first_open for each in self._logs]
        first_opens = None
        if any(each is not None for each in opens_now):
            first_opens = [opens_now[each.log - 1] for each in self._operations]
        own.number = self._number
        own.answer = (self._verdicts, self._bases, self._starts, self._details, first_opens)
        return own.answer

    def _write_runs(self) -> None:
        tables = self._tables
        first_object = len(tables.objects)
        tables.objects += [ObjectRow(*each) for each in zip(self._keys, self._key_sizes, strict=True)]
        if not self._runs:
            return
        if self._payload is not None:
            tables.inline.append(bytes(self._payload))
        inline = len(tables.inline)
        for id, run in self._runs:
            object_number = run.object or 0
            stored = replace(
                run,
                inline=inline if run.refs is None and object_number == 0 else None,
                object=first_object + object_number - 1 if object_number > 0 else None,
            )
            tables.runs.setdefault(id, []).append(stored)

    def _write_state(self) -> None:
        state = self._tables.state
        for commit, space, owner, key, value in self._puts:
            if commit in self._voided:
                continue
            if value is None:
                state.pop((space, bytes(key)), None)
            else:
                state[space, bytes(key)] = (bytes(owner), bytes(value))
        if self._puts and self._changed:
            self._tables.note_change([], self._changed)


def open_commit_path(
    tables: Tables,
    holder: UUID,
    epoch: int,
    coordinates: bool,
    path: int,
    acknowledged: int,
    confirmed: int,
) -> tuple[Any, ...]:
    tables.check_lease(holder, epoch)
    if tables.loss is not None:
        raise Raised("PH007", tables.loss)
    own = tables.committers.get((holder, path))
    if (0 if own is None else own.number) < acknowledged:
        number = 0 if own is None else own.number
        loss = f"commit {acknowledged} of a broker was answered, and {number} is the last that it knows"
        tables.record_loss(loss, confirmed)
        return number, 0, loss
    if own is None:
        own = tables.committers[holder, path] = CommitterRow()
    else:
        own.number += 1
        own.answer = None
    return own.number, 0, None


def reserve_producer_ids(
    tables: Tables, holder: UUID, epoch: int, path: int, acknowledged: int, count: int, end: int
) -> tuple[Any, ...]:
    tables.check_lease(holder, epoch)
    own = tables.committers.get((holder, path))
    if own is None or own.number < acknowledged:
        raise Raised("PH002", f"commit {acknowledged} of path {path} is missing")
    own.number += 1
    key = (int(Space.PRODUCER_IDS), b"next")
    first = int.from_bytes(tables.state[key][1], "big") if key in tables.state else 0
    if first + count > end:
        return None, own.number
    tables.state[key] = (b"", (first + count).to_bytes(8, "big"))
    return first, own.number


def resolve_commit(tables: Tables, holder: UUID, path: int, number: int) -> tuple[Any, ...]:
    own = tables.committers.get((holder, path))
    if own is None:
        return None, None, None, None, None, None, None
    if own.number == number and own.answer is not None:
        return own.number, True, *own.answer
    last = own.number
    if own.number == number - 1:
        own.number, own.answer = number, None
    return last, False, None, None, None, None, None
