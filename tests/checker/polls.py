"""What one consumer reads, poll after poll: in order, and without leaving anything out."""

from bisect import bisect_left
from collections.abc import Iterator

from tests.checker.history import Assign, Partition
from tests.checker.log import Fate, Log, View
from tests.checker.report import Anomaly, Kind


def check_polls(log: Log) -> Iterator[Anomaly]:
    for process in log.consumers:
        yield from _Consumer(log, process).check()
    for view in log.views.values():
        yield from _final_reads(view)


def _final_reads(view: View) -> Iterator[Anomaly]:
    """A final read is in order too."""
    for read in view.final_reads:
        last = -1
        for offset, value in read.records:
            if offset <= last:
                text = f"the final read of {view} has {value} at {offset} after offset {last}"
                yield Anomaly(Kind.NON_MONOTONIC_POLL, text, (value,))
            last = offset


class _Consumer:
    """One consumer. Between two assignments its polls are one continuous read of each partition.

    - Offsets rise, within a poll and from one to the next.
    - No record is left out that is there and that this reader may see. Who reads an offset could have read
      every lower one before, so anything that is known to be below was skipped, whenever it became known.
      Gaps are allowed: control records have no value, and aborted records are not for committed-only readers.
      So is a jump of a consumer that the log's start overtook, which begins anew wherever it is told to.
    - The first record after an assignment to an offset is the first one from there on. It may be a lower one
      if the offset was out of range, so that is not judged.
    """

    def __init__(self, log: Log, process: int) -> None:
        self._log = log
        self._process = process
        self._assigned: dict[Partition, int | None] = {}
        self._next: dict[Partition, int] = {}

    def check(self) -> Iterator[Anomaly]:
        for operation in self._log.consumers[self._process]:
            if isinstance(operation, Assign):
                self._assigned = operation.positions
                self._next = {}
                continue
            for partition, offset, value in operation.records:
                expected = self._next.get(partition)
                if expected is None:
                    expected = self._assigned.get(partition)
                    if expected is not None and offset > expected:
                        yield from self._skipped(partition, expected, offset, operation.committed_only)
                elif offset > expected:
                    yield from self._skipped(partition, expected, offset, operation.committed_only)
                elif offset < expected:
                    yield self._went_back(partition, expected - 1, offset, value)
                self._next[partition] = offset + 1

    def _went_back(self, partition: Partition, last: int, offset: int, value: int) -> Anomaly:
        view = self._log.views[partition]
        text = f"consumer {self._process} read {value} from {view} at {offset} after {last}"
        return Anomaly(Kind.NON_MONOTONIC_POLL, text, (value,))

    def _skipped(
        self, partition: Partition, expected: int, offset: int, committed_only: bool
    ) -> Iterator[Anomaly]:
        view = self._log.views[partition]
        if expected < view.start:
            return
        there = visible_offsets(self._log, view, committed_only)
        low, high = bisect_left(there, expected), bisect_left(there, offset)
        if low < high:
            values = tuple(view.values[each] for each in there[low:high])
            text = f"consumer {self._process} jumped in {view} from {expected} to {offset}, over {values[0]}"
            yield Anomaly(Kind.POLL_SKIP, text, values)


def visible_offsets(log: Log, view: View, committed_only: bool) -> list[int]:
    """Offsets, rising, that a reader of this kind cannot pass without a record."""
    known = view.visible.get(committed_only)
    if known is None:
        known = view.visible[committed_only] = sorted(_visible(log, view, committed_only))
    return known


def _visible(log: Log, view: View, committed_only: bool) -> set[int]:
    """What the final reads found is surely there. Without them it is what anybody was told of."""
    if committed_only and view.committed is not None:
        return set(view.committed.at)
    if view.everything is not None:
        there = set(view.everything.at)
    elif view.committed is not None:
        return set(view.committed.at)
    else:
        there = set(view.values)
    if committed_only:
        there = {offset for offset in there if _is_committed(log, view.values[offset])}
    return there


def _is_committed(log: Log, value: int) -> bool:
    send = log.sends.get(value)
    return send is not None and log.fate(send) is Fate.COMMITTED
