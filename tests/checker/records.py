"""Records that are missing, there twice, in two places, or from nowhere."""

from collections import Counter
from collections.abc import Iterator

from tests.checker.history import Outcome, Send
from tests.checker.log import Final, Log, View
from tests.checker.report import Anomaly, Kind


def check_records(log: Log) -> Iterator[Anomaly]:
    for view in log.views.values():
        yield from _duplicates(view)
        yield from _inconsistent_offsets(view)
        yield from _phantoms(log, view)
        yield from _missing(log, view)
        yield from _gone(view)


def _duplicates(view: View) -> Iterator[Anomaly]:
    """A producer writes each value once, however often it retries. So no final read has a value twice."""
    for value in sorted(_there_twice(view)):
        yield Anomaly(Kind.DUPLICATE, f"{value} is in {view} more than once", (value,))


def _there_twice(view: View) -> set[int]:
    return {
        value
        for read in view.final_reads
        for value, count in Counter(value for _, value in read.records).items()
        if count > 1
    }


def _inconsistent_offsets(view: View) -> Iterator[Anomaly]:
    """An offset has one value for ever and a value has one offset, whoever was told: producers by
    acknowledgements, consumers by polls, the final reads."""
    twice = _there_twice(view)
    for offset, value in dict.fromkeys(view.conflicts):
        known = view.values[offset]
        if known != value:
            text = f"{view} has {known} at offset {offset}, and also {value}"
            yield Anomaly(Kind.INCONSISTENT_OFFSET, text, (known, value))
        elif value not in twice:
            text = f"{view} has {value} at offset {view.offsets[value]}, and also at {offset}"
            yield Anomaly(Kind.INCONSISTENT_OFFSET, text, (value,))


def _phantoms(log: Log, view: View) -> Iterator[Anomaly]:
    """Every record was sent by somebody, to the partition that it is in."""
    for value, offset in view.offsets.items():
        send = log.sends.get(value)
        if send is None or send.partition != view.partition:
            text = f"{value} is in {view} at offset {offset}, where nobody sent it"
            yield Anomaly(Kind.PHANTOM, text, (value,))


def _missing(log: Log, view: View) -> Iterator[Anomaly]:
    """What was acknowledged is in the final reads, unless the log's start has passed it. It is lost if the
    reader has passed its place or the log ends before it, and unseen if the log reaches beyond it but the
    reader got nothing from there on. Aborted records are only in a read of everything; what a committed-only
    read must have of a transaction is judged for the transaction as a whole."""
    reported = set()
    for read in view.final_reads:
        for send in view.sends:
            if send.outcome is not Outcome.OK or send.value in read.values or send.value in reported:
                continue
            if read.committed_only and send.transaction is not None:
                continue
            if within_reach(view, read, send.offset):
                reported.add(send.value)
                yield missing(view, read, send)


def within_reach(view: View, read: Final, offset: int | None) -> bool:
    """Whether a record that was at the offset has to be in the final read, if it is visible at all.
    A committed-only read may end early where a transaction may be open."""
    may_end_early = read.committed_only and view.stalled
    if offset is None:
        return view.start == 0 and not may_end_early
    return offset >= view.start and (offset < read.end or not may_end_early)


def missing(view: View, read: Final, send: Send) -> Anomaly:
    reach = max(read.end for read in view.final_reads)
    text = f"{send.value} was acknowledged in {view} at {send.offset}"
    if send.offset is None:
        return Anomaly(Kind.LOST_WRITE, f"{text} and is not there", (send.value,))
    if read.last < send.offset < reach:
        text = f"{text} and the log reaches {reach}, but the final read got no further than {read.last}"
        return Anomaly(Kind.UNSEEN, text, (send.value,))
    there = read.at.get(send.offset, "nothing")
    return Anomaly(Kind.LOST_WRITE, f"{text}, where there is {there}", (send.value,))


def _gone(view: View) -> Iterator[Anomaly]:
    """What a poll has returned stays: no crash may take it back. It is in the final read of everything, and,
    if the poll returned only what is committed, in the final read of that too."""
    for read in view.final_reads:
        seen = view.polled_committed if read.committed_only else view.polled
        for value, offset in seen.items():
            if value not in read.values and offset >= view.start:
                text = f"{value} was read from {view} at {offset} and is not in the final read"
                yield Anomaly(Kind.DIRTY_VISIBILITY, text, (value,))
