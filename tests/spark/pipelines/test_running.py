"""Watching queries, with stand-ins that report what the test wants."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from posthouse.client.topic_partitions import TopicPartition
from posthouse.spark.pipelines.progress import QueryState, Tracker
from posthouse.spark.pipelines.running import PipelineFailed, reason, run_queries
from posthouse.spark.stop_request import StopRequest

pytestmark = pytest.mark.xdist_group("spark")


def progress(batch: int, rows: int, end: int, latest: int, *, second: int | None = None) -> Any:
    """As Spark reports it after a micro-batch of one partition."""
    offsets = [{"t": {"0": value}} for value in (end - rows, end, latest)]
    source = dict(zip(("startOffset", "endOffset", "latestOffset"), offsets, strict=True))
    numbers = {"numInputRows": rows, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    durations = {"triggerExecution": 500} | ({"addBatch": 400} if rows else {})
    return StreamingQueryProgress.fromJson(
        {
            "id": "00000000-0000-0000-0000-000000000000",
            "runId": "00000000-0000-0000-0000-000000000000",
            "name": "q",
            "timestamp": f"2026-01-01T00:00:{batch if second is None else second:02}.000Z",
            "batchId": batch,
            "batchDuration": 500,
            "durationMs": durations,
            "eventTime": {},
            "stateOperators": [],
            "sources": [{"description": "posthouse", **source, **numbers}],
            "sink": {"description": "s", "numOutputRows": -1},
            **numbers,
        }
    )


class Query:
    """A query that goes one step further each time somebody looks at its status."""

    def __init__(self, *steps: Callable[["Query"], None]) -> None:
        self.name = "q"
        self.id = "0000"
        self.isActive = True
        self.recentProgress: list[Any] = []
        self.stops = 0
        self.error: Exception | None = None
        self.busy = True
        self._steps = list(steps)

    @property
    def lastProgress(self) -> Any:
        if self.isActive and self._steps:
            self._steps.pop(0)(self)
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": self.busy}

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.stops += 1
        self.isActive = False


def reports(*some: Any) -> Callable[[Query], None]:
    return lambda query: query.recentProgress.extend(some)


def ends(error: Exception | None = None) -> Callable[[Query], None]:
    def end(query: Query) -> None:
        query.isActive, query.error = False, error

    return end


def idles(query: Query) -> None:
    query.busy = False


def nothing(query: Query) -> None:
    pass


def ran(*queries: Query, stop: StopRequest | None = None, **more: Any) -> tuple[list[QueryState], list[Any]]:
    shown: list[Any] = []
    states = run_queries(queries, stop=stop or StopRequest(), show=shown.append, **more)  # type: ignore[arg-type]
    return states, shown


def test_records_are_counted_once_and_the_rest_is_the_last() -> None:
    query = Query(
        reports(progress(0, 100, 100, 400), progress(1, 50, 150, 400)), reports(progress(2, 250, 400, 400))
    )
    tracker = Tracker(query)  # type: ignore[arg-type]
    tracker.update()
    assert (tracker.state().records, tracker.state().behind, tracker.state().batch) == (150, 250, 1)
    assert tracker.state().done == pytest.approx(150 / 400)
    tracker.update()
    tracker.update()
    state = tracker.state()
    assert (state.records, state.behind, state.batch, state.done) == (400, 0, 2, 1.0)
    assert (state.rate, state.batch_ms, state.status) == (500.0, 500, "working")
    assert tracker.position == {TopicPartition("t", 0): 400}


def test_a_report_of_an_idle_query_is_no_batch() -> None:
    query = Query(reports(progress(0, 100, 100, 100)), reports(progress(1, 0, 100, 130, second=9)))
    tracker = Tracker(query)  # type: ignore[arg-type]
    tracker.update()
    tracker.update()
    state = tracker.state()
    assert (state.batch, state.records, state.rate, state.behind) == (0, 100, 200.0, 30)


def test_sources_that_are_no_logs_have_no_lag() -> None:
    strange = progress(0, 5, 5, 5)
    strange["sources"][0]["endOffset"] = "17"
    query = Query(reports(strange))
    tracker = Tracker(query)  # type: ignore[arg-type]
    tracker.update()
    assert (tracker.state().behind, tracker.state().done, tracker.state().records) == (None, None, 5)


def test_it_ends_when_they_have_ended() -> None:
    states, shown = ran(Query(reports(progress(0, 7, 7, 7)), ends()))
    assert [(state.records, state.status) for state in states] == [(7, "ended")]
    assert shown[0][0].status == "working" and shown[-1] == states


def test_a_failure_stops_the_others_and_is_one_sentence() -> None:
    failing, other = Query(ends(ValueError("first line\nmore"))), Query()
    with pytest.raises(PipelineFailed, match=r"^query 'q' failed: first line; see Spark's log"):
        ran(failing, other)
    assert other.stops == 1


def test_stopping_waits_for_the_batch_that_runs() -> None:
    stop = StopRequest()
    query = Query(
        reports(progress(0, 1, 1, 9)), lambda _: stop(), nothing, nothing, reports(progress(1, 8, 9, 9))
    )
    [state], _ = ran(query, stop=stop)
    assert (state.batch, state.records, state.status, query.stops) == (1, 9, "ended", 1)


def test_an_idle_query_is_stopped_at_once() -> None:
    stop = StopRequest()
    stop()
    query = Query(idles)
    ran(query, stop=stop)
    assert query.stops == 1


def test_a_second_request_does_not_wait() -> None:
    stop = StopRequest()
    stop()
    assert stop.is_wanted and not stop.is_urgent
    query = Query(nothing, lambda _: stop())
    ran(query, stop=stop)
    assert query.stops == 1 and query.recentProgress == []


def test_it_has_read_enough_at_the_end_of_the_stretch() -> None:
    query = Query(reports(progress(0, 50, 50, 900)), reports(progress(1, 60, 110, 900)))
    [state], shown = ran(query, ends={TopicPartition("t", 0): 100, TopicPartition("other", 0): 5})
    assert query.stops == 1 and state.batch == 1
    assert shown[0][0].behind == 50, "of the stretch, not of the topic"
    assert state.done == 1.0


def test_the_reason_is_the_python_error_where_there_is_one() -> None:
    text = (
        "[STREAM_FAILED] Query [id = x] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed:\n"
        "Traceback (most recent call last):\n"
        '  File "/x.py", line 3, in f\n'
        "posthouse.spark.errors.DataLoss: offset 5 is gone; set failOnDataLoss to false.\n"
        "\n"
    )
    assert reason(Exception(text)) == (
        "posthouse.spark.errors.DataLoss: offset 5 is gone; set failOnDataLoss to false"
    )
    assert reason(Exception("")) == "Exception"
    assert json.dumps(reason(Exception("a.\nb"))) == '"a"'
