"""Records of transactions that were read too early, or though they were aborted, or only in part."""

from collections.abc import Iterator

from tests.checker.history import Outcome, Partition
from tests.checker.log import Fate, Log, Transaction
from tests.checker.records import missing, within_reach
from tests.checker.report import Anomaly, Kind


def check_transactions(log: Log) -> Iterator[Anomaly]:
    yield from _failed_sends(log)
    yield from _aborted_reads(log)
    yield from _precommitted_reads(log)
    for number, transaction in log.transactions.items():
        if transaction.fate is not Fate.NOT_COMMITTED:
            yield from _torn(log, number, transaction)


def _failed_sends(log: Log) -> Iterator[Anomaly]:
    """A send that surely failed left nothing that anybody can read."""
    for view in log.views.values():
        for send in view.sends:
            if send.outcome is Outcome.FAILED and send.value in view.offsets:
                text = f"{send.value} was read from {view} though its send failed"
                yield Anomaly(Kind.ABORTED_READ, text, (send.value,))


def _aborted_reads(log: Log) -> Iterator[Anomaly]:
    """A committed-only reader never sees a transaction that was aborted, or that nobody tried to commit."""
    never = {number for number, each in log.transactions.items() if each.fate is Fate.NOT_COMMITTED}
    for view in log.views.values():
        committed = view.committed.values if view.committed else set()
        for send in view.sends:
            if send.transaction in never and (send.value in view.polled_committed or send.value in committed):
                text = f"{send.value} of transaction {send.transaction}, which nobody committed, was read"
                yield Anomaly(Kind.ABORTED_READ, f"{text} from {view} as committed", (send.value,))


def _precommitted_reads(log: Log) -> Iterator[Anomaly]:
    """A committed-only poll that was over before the commit was asked for cannot have seen its records."""
    asked = {
        number: min(end.invoked for end in each.commits)
        for number, each in log.transactions.items()
        if each.fate is not Fate.NOT_COMMITTED
    }
    for poll in log.polls:
        if not poll.committed_only:
            continue
        for partition, offset, value in poll.records:
            send = log.sends.get(value)
            if send is None or send.transaction is None:
                continue
            if poll.completed < asked.get(send.transaction, 0):
                text = (
                    f"{value} of transaction {send.transaction} was read from {_name(partition)} at {offset}"
                )
                yield Anomaly(Kind.PRECOMMITTED_READ, f"{text} before it was committed", (value,))


def _torn(log: Log, number: int, transaction: Transaction) -> Iterator[Anomaly]:
    """The committed-only final reads, of all partitions together, have all acknowledged records of
    a transaction or none; none is a loss if the commit was acknowledged. Not counted is what the log's start
    has passed, and what is above the last stable offset while a transaction may be open there."""
    seen = []
    lacking = []
    for send in transaction.sends:
        view = log.views[send.partition]
        if view.committed is None:
            continue
        if send.value in view.committed.values:
            seen.append(send.value)
        elif send.outcome is Outcome.OK and within_reach(view, view.committed, send.offset):
            lacking.append((view, view.committed, send))
    if not lacking:
        return
    if seen:
        gone = tuple(send.value for _, _, send in lacking)
        text = f"of transaction {number} there is {_some(tuple(seen))}, but not {_some(gone)}"
        yield Anomaly(Kind.TORN_TRANSACTION, text, gone)
    elif transaction.fate is Fate.COMMITTED:
        for view, read, send in lacking:
            if view.everything is None or send.value in view.everything.values:  # or it is reported already
                yield missing(view, read, send)


def _some(values: tuple[int, ...], most: int = 5) -> str:
    listed = ", ".join(map(str, values[:most]))
    return listed if len(values) <= most else f"{listed} and {len(values) - most} more"


def _name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"
