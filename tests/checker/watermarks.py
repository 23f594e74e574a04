"""The bounds of a partition only ever move forward.

Of several brokers on one log, each may know of a change a little later than another has told of it. An answer
is compared with earlier ones of the same broker, and the final reads with all answers.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import attrgetter

from tests.checker.history import Watermarks
from tests.checker.log import Log, View
from tests.checker.report import Anomaly, Kind

_BOUNDS = (("start", Kind.LOG_START), ("stable", Kind.STABLE_OFFSET), ("end", Kind.HIGH_WATERMARK))


def check_watermarks(log: Log) -> Iterator[Anomaly]:
    for partition, answers in log.watermarks.items():
        for of_broker in _by_broker(answers):
            for name, kind in _BOUNDS:
                yield from _went_back(log.views[partition], of_broker, name, kind)
    for view in log.views.values():
        yield from _final_bounds(log, view)


def _by_broker(answers: list[Watermarks]) -> Iterable[list[Watermarks]]:
    found: defaultdict[str, list[Watermarks]] = defaultdict(list)
    for answer in answers:
        found[answer.broker].append(answer)
    return found.values()


def _went_back(view: View, answers: list[Watermarks], name: str, kind: Kind) -> Iterator[Anomaly]:
    """A question that was asked after the answer to another was there cannot get a lower answer. Questions
    under way together may be answered in any order."""
    value = attrgetter(name)
    done = sorted(answers, key=lambda answer: answer.completed)
    highest = -1
    index = 0
    for answer in sorted(answers, key=lambda answer: answer.invoked):
        while done[index].completed < answer.invoked:
            highest = max(highest, value(done[index]))
            index += 1
        if value(answer) < highest:
            yield Anomaly(kind, f"{view}: {name} was {highest} and then {value(answer)}")


def _final_bounds(log: Log, view: View) -> Iterator[Anomaly]:
    """Nor can the final reads begin or end below what was answered before."""
    answers = log.watermarks.get(view.partition, [])
    start = max((answer.start for answer in answers), default=-1)
    stable = max((answer.stable for answer in answers), default=-1)
    highest = max((answer.end for answer in answers), default=-1)
    if view.everything is not None and view.everything.end < highest:
        text = f"{view}: end was {highest}, and {view.everything.end} in the final read"
        yield Anomaly(Kind.HIGH_WATERMARK, text)
    if view.committed is not None and view.committed.end < stable:
        text = f"{view}: stable was {stable}, and {view.committed.end} in the final read"
        yield Anomaly(Kind.STABLE_OFFSET, text)
    for read in view.final_reads:
        if read.start < start:
            yield Anomaly(Kind.LOG_START, f"{view}: start was {start}, and {read.start} in the final read")
