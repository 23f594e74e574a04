"""Running a pipeline's queries until they end, fail, or are stopped.

A stop lets the current micro-batch finish, and then ends the query. Correctness does not depend on it,
because an interrupted batch is repeated from the checkpoint; it only saves that work.
"""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from posthouse.spark.errors import SparkError
from posthouse.spark.offsets import Offsets
from posthouse.spark.pipelines.progress import QueryState, Tracker
from posthouse.spark.stop_request import StopRequest

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS = 0.25
_BATCH_SECONDS = 60.0
# The last line of a Python traceback: a dotted class name, a colon, a message.
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Loss|Option|Schema|Gone|NotFound|Unreachable): ")


class PipelineFailed(SparkError):
    """A query ended with an error."""


def run_queries(
    queries: Iterable["StreamingQuery"],
    *,
    stop: StopRequest,
    show: Callable[[Sequence[QueryState]], None],
    ends: Offsets | None = None,
) -> list[QueryState]:
    """Returns the final states. A query that has reached `ends` is stopped."""
    trackers = [Tracker(query, ends) for query in queries]
    try:
        while any(tracker.query.isActive for tracker in trackers):
            _look(trackers, show)
            _check(trackers)
            for tracker in trackers:
                if tracker.query.isActive and ends and _is_past(tracker, ends):
                    tracker.query.stop()
            if stop.is_wanted:
                _finish_batches(trackers, stop, show)
                break
            stop.wait(_LOOK_SECONDS)
        _check(trackers)
    finally:
        for tracker in trackers:
            if tracker.query.isActive:
                tracker.query.stop()
    return _look(trackers, show)


def _look(trackers: Sequence[Tracker], show: Callable[[Sequence[QueryState]], None]) -> list[QueryState]:
    for tracker in trackers:
        tracker.update()
    states = [tracker.state() for tracker in trackers]
    show(states)
    return states


def _is_past(tracker: Tracker, ends: Offsets) -> bool:
    # A query need not read every topic of the pipeline, but it has all partitions of those that it reads.
    mine = {place.topic for place in tracker.position}
    return bool(mine) and all(
        tracker.position.get(place, 0) >= end for place, end in ends.items() if place.topic in mine
    )


def _finish_batches(
    trackers: Sequence[Tracker], stop: StopRequest, show: Callable[[Sequence[QueryState]], None]
) -> None:
    running = {id(tracker): tracker.batch for tracker in trackers}
    deadline = time.monotonic() + _BATCH_SECONDS
    left = list(trackers)
    while left and not stop.is_urgent and time.monotonic() < deadline:
        _look(trackers, show)
        _check(trackers)
        for tracker in list(left):
            query = tracker.query
            is_idle = not query.isActive or not query.status["isTriggerActive"]
            if is_idle or tracker.batch > running[id(tracker)]:
                query.stop()
                left.remove(tracker)
        if left:
            stop.wait(_LOOK_SECONDS)
    for tracker in left:
        tracker.query.stop()


def _check(trackers: Sequence[Tracker]) -> None:
    for tracker in trackers:
        error = tracker.query.exception() if not tracker.query.isActive else None
        if error is not None:
            raise PipelineFailed(
                f"query {tracker.state().name!r} failed: {reason(error)}; see Spark's log for more, then run "
                "it again to resume from its checkpoint"
            )


def reason(error: BaseException) -> str:
    """The one line of Spark's error that has the cause: the innermost Python error, or the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [line for line in lines if _PYTHON_ERROR.match(line)]
    return (python[-1] if python else lines[0] if lines else type(error).__name__).rstrip(".")
