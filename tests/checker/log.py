"""The log's part of a history, sorted for the checks: by partition, by transaction, by process."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from tests.checker.history import (
    Assign,
    CommitOffset,
    CommittedOffset,
    End,
    FinalRead,
    Operation,
    Outcome,
    Partition,
    Poll,
    Send,
    Watermarks,
)


class Fate(Enum):
    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    """Aborted, or left open by everyone who could have committed it."""
    UNDECIDED = "undecided"
    """Nobody was told whether the commit was done."""


@dataclass(slots=True)
class Transaction:
    sends: list[Send] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)

    @property
    def fate(self) -> Fate:
        outcomes = {end.outcome for end in self.ends if end.commit}
        if Outcome.OK in outcomes:
            return Fate.COMMITTED
        return Fate.UNDECIDED if Outcome.UNKNOWN in outcomes else Fate.NOT_COMMITTED

    @property
    def may_be_open(self) -> bool:
        """Nobody was told of its end, or a request of it may have come late; it may hold up readers."""
        ended = any(end.outcome is Outcome.OK for end in self.ends)
        return not ended or any(send.outcome is Outcome.UNKNOWN for send in self.sends)

    @property
    def commits(self) -> Iterator[End]:
        """Ends that committed it, or may have."""
        return (end for end in self.ends if end.commit and end.outcome is not Outcome.FAILED)


class Final:
    """A final read, by offset and by value."""

    def __init__(self, read: FinalRead) -> None:
        self.committed_only = read.committed_only
        self.start = read.start
        self.end = read.end
        self.records = read.records
        self.at = dict(read.records)
        self.values = {value for _, value in read.records}
        self.last = max(self.at, default=-1)


@dataclass(slots=True)
class View:
    """What is known of one partition from everything that was acknowledged or read."""

    partition: Partition
    sends: list[Send] = field(default_factory=list)
    values: dict[int, int] = field(default_factory=dict)
    """The value at each offset, as it was known first."""
    offsets: dict[int, int] = field(default_factory=dict)
    """The offset of each value, as it was known first."""
    known_since: dict[int, int] = field(default_factory=dict)
    """For each offset, when the first client was told of the record there."""
    polled: dict[int, int] = field(default_factory=dict)
    """The offset of each value that a poll returned."""
    polled_committed: dict[int, int] = field(default_factory=dict)
    """The same, for polls that return only what is committed."""
    conflicts: list[tuple[int, int]] = field(default_factory=list)
    """Offsets and values that do not agree with what was known before."""
    everything: Final | None = None
    committed: Final | None = None
    start: int = 0
    """The highest log start that anybody was told."""
    visible: dict[bool, list[int]] = field(default_factory=dict)
    """Offsets that a reader must not leave out, by whether it reads only what is committed."""
    stalled: bool = False
    """A transaction may be open here, so that the last stable offset may be behind the high watermark."""

    @property
    def final_reads(self) -> list[Final]:
        return [read for read in (self.everything, self.committed) if read is not None]

    def observe(self, offset: int, value: int) -> None:
        known = self.values.setdefault(offset, value)
        place = self.offsets.setdefault(value, offset)
        if known != value or place != offset:
            self.conflicts.append((offset, value))

    def __str__(self) -> str:
        return f"{self.partition[0]}-{self.partition[1]}"


class Log:
    def __init__(self, history: Iterable[Operation]) -> None:
        self.sends: dict[int, Send] = {}
        self.transactions: defaultdict[int, Transaction] = defaultdict(Transaction)
        self.views: dict[Partition, View] = {}
        self.polls: list[Poll] = []
        self.consumers: defaultdict[int, list[Assign | Poll]] = defaultdict(list)
        self.commits: list[CommitOffset] = []
        self.committed_offsets: list[CommittedOffset] = []
        self.watermarks: defaultdict[Partition, list[Watermarks]] = defaultdict(list)
        for operation in history:
            self._add(operation)
        self._observe_sends()
        self._observe_polls()
        self._observe_final_reads()
        self._find_stalled()

    def view(self, partition: Partition) -> View:
        view = self.views.get(partition)
        if view is None:
            view = self.views[partition] = View(partition)
        return view

    def fate(self, send: Send) -> Fate:
        """A record outside of transactions is committed by being there."""
        return Fate.COMMITTED if send.transaction is None else self.transactions[send.transaction].fate

    def _add(self, operation: Operation) -> None:
        match operation:
            case Send():
                if operation.value in self.sends:
                    raise ValueError(f"value {operation.value} was sent twice, but values must be unique")
                self.sends[operation.value] = operation
            case Poll():
                self.polls.append(operation)
                self.consumers[operation.process].append(operation)
            case Assign():
                self.consumers[operation.process].append(operation)
            case End():
                self.transactions[operation.transaction].ends.append(operation)
            case CommitOffset():
                self.commits.append(operation)
            case CommittedOffset():
                self.committed_offsets.append(operation)
            case Watermarks():
                self.watermarks[operation.partition].append(operation)
                view = self.view(operation.partition)
                view.start = max(view.start, operation.start)
            case FinalRead():
                self._add_final_read(operation)
            case _:
                pass  # a queue's, or a fault

    def _add_final_read(self, read: FinalRead) -> None:
        view = self.view(read.partition)
        view.start = max(view.start, read.start)
        if read.committed_only:
            view.committed = Final(read)
        else:
            view.everything = Final(read)

    def _observe_sends(self) -> None:
        for send in self.sends.values():
            view = self.view(send.partition)
            view.sends.append(send)
            if send.transaction is not None:
                self.transactions[send.transaction].sends.append(send)
            if send.outcome is Outcome.OK and send.offset is not None:
                view.observe(send.offset, send.value)
                view.known_since[send.offset] = send.completed

    def _observe_polls(self) -> None:
        for poll in self.polls:
            completed = poll.completed
            for partition, offset, value in poll.records:
                view = self.view(partition)
                view.observe(offset, value)
                view.polled[value] = offset
                if poll.committed_only:
                    view.polled_committed[value] = offset
                if view.known_since.setdefault(offset, completed) > completed:
                    view.known_since[offset] = completed

    def _observe_final_reads(self) -> None:
        for view in self.views.values():
            for read in view.final_reads:
                for offset, value in read.records:
                    view.observe(offset, value)

    def _find_stalled(self) -> None:
        for number, transaction in self.transactions.items():
            if transaction.may_be_open:
                for partition in {send.partition for send in transaction.sends}:
                    view = self.views[partition]
                    view.stalled = view.stalled or self._may_hold_up(number, view)

    def _may_hold_up(self, transaction: int, view: View) -> bool:
        """The last stable offset is where an open transaction begins: the record there tells which it is."""
        if view.everything is None or view.committed is None:
            return True
        first = self.sends.get(view.everything.at.get(view.committed.end, -1))
        return first is None or first.transaction == transaction
