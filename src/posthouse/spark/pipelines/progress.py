"""Progress of a streaming query, from Spark's reports after each micro-batch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from posthouse.spark.offsets import Offsets, from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    """One line of the display."""

    name: str
    batch: int
    """The last finished batch; -1 for none."""
    records: int
    """Records read since the start."""
    rate: float
    """Records a second in the last batch that had any."""
    behind: int | None
    """Waiting records; None if the source does not report it."""
    batch_ms: int
    done: float | None
    """The fraction of the records present at the start that has been read; None before the first batch."""
    status: str


class Tracker:
    """Follows one query: polls on request, and accumulates its counts."""

    def __init__(self, query: "StreamingQuery", ends: Offsets | None = None) -> None:
        self.query = query
        self._ends = ends or {}
        self.position: Offsets = {}
        """The offsets up to which everything has been read."""
        self._seen = ""
        self._batch = -1
        self._records = 0
        self._rate = 0.0
        self._batch_ms = 0
        self._behind: int | None = None
        self._first: int | None = None
        """Number of records that waited when the first batch began."""

    @property
    def batch(self) -> int:
        return self._batch

    def update(self) -> None:
        last = self.query.lastProgress
        if last is None or last.timestamp == self._seen:
            return
        # Times in the same format sort as text.
        for progress in self.query.recentProgress:
            if progress.timestamp > self._seen:
                self._take(progress)
                self._seen = progress.timestamp

    def state(self) -> QueryState:
        done = None
        if self._behind is not None and self._first:
            done = max(0.0, 1 - self._behind / self._first)
        elif self._behind == 0:
            done = 1.0
        return QueryState(
            name=self.query.name or str(self.query.id)[:8],
            batch=self._batch,
            records=self._records,
            rate=self._rate,
            behind=self._behind,
            batch_ms=self._batch_ms,
            done=done,
            status=self._status(),
        )

    def _status(self) -> str:
        if not self.query.isActive:
            return "failed" if self.query.exception() is not None else "ended"
        if self._batch < 0:
            return "starting"
        return "working" if self.query.status["isTriggerActive"] else "waiting"

    def _take(self, progress: Any) -> None:
        rows = progress.numInputRows
        self._records += rows
        duration = progress.durationMs.get("triggerExecution", 0)
        if rows or "addBatch" in progress.durationMs:
            self._batch = progress.batchId
            self._batch_ms = duration
        if rows and duration:
            self._rate = rows * 1000 / duration
        waiting = 0
        known = False
        for source in progress.sources:
            ended, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
            if ended is None:
                continue
            self.position.update(ended)
            goal = {place: end for place, end in self._ends.items() if place in ended} or latest
            if goal is not None:
                known = True
                waiting += sum(max(0, goal[place] - ended.get(place, 0)) for place in goal)
        if known:
            self._behind = waiting
            if self._first is None:
                self._first = waiting + rows


def _offsets(text: str | None) -> Offsets | None:
    """None if there is no offset yet, or if it is not the offset of a log."""
    try:
        value = json.loads(text or "null")
        return from_json(value) if isinstance(value, Mapping) else None
    except (ValueError, AttributeError, TypeError):
        return None
