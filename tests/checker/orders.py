"""The order in which records came into a partition."""

from collections import defaultdict
from collections.abc import Iterator

from tests.checker.history import Outcome, Send
from tests.checker.log import Log, View
from tests.checker.report import Anomaly, Kind


def check_orders(log: Log) -> Iterator[Anomaly]:
    for view in log.views.values():
        yield from _non_monotonic_sends(view)
        yield from _real_time_order(view)


def _non_monotonic_sends(view: View) -> Iterator[Anomaly]:
    """What one process sent to a partition and was acknowledged has offsets in the order in which it was
    sent, also when sends were under way together. Sends at the very same time are not compared."""
    by_process: defaultdict[int, list[Send]] = defaultdict(list)
    for send in view.sends:
        if send.outcome is Outcome.OK and send.offset is not None:
            by_process[send.process].append(send)
    for process, sends in by_process.items():
        sends.sort(key=lambda send: send.invoked)
        last = latest = None
        for send in sends:
            if latest is not None and send.invoked > latest.invoked:
                last = latest if last is None else max(last, latest, key=_offset)
                latest = None
            if last is not None and _offset(send) < _offset(last):
                text = f"process {process} sent {last.value} before {send.value}, but in {view} they are at"
                text = f"{text} {last.offset} and {send.offset}"
                yield Anomaly(Kind.NON_MONOTONIC_SEND, text, (last.value, send.value))
            latest = send if latest is None else max(latest, send, key=_offset)


def _offset(send: Send) -> int:
    assert send.offset is not None
    return send.offset


def _real_time_order(view: View) -> Iterator[Anomaly]:
    """A record that anybody was told of, by an acknowledgement or a poll, before another was sent has the
    lower offset of the two. The later one counts wherever it was found, whatever its outcome."""
    known = sorted((time, offset) for offset, time in view.known_since.items())
    sends = sorted(view.sends, key=lambda send: send.invoked)
    highest = -1
    index = 0
    for send in sends:
        while index < len(known) and known[index][0] < send.invoked:
            highest = max(highest, known[index][1])
            index += 1
        offset = view.offsets.get(send.value)
        if offset is not None and offset < highest:
            before = view.values[highest]
            text = f"{before} was in {view} at {highest} before {send.value} was sent, which is at {offset}"
            yield Anomaly(Kind.REAL_TIME_ORDER, text, (before, send.value))
