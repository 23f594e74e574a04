"""Progress of a pipeline: a live table on a terminal, otherwise a line from time to time."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from posthouse.cli.output import say
from posthouse.model.excerpts import printable
from posthouse.spark.pipelines.progress import QueryState

_LINE_SECONDS = 5.0
_COLUMNS = ("query", "batch", "records", "per s", "behind", "took", "state")
_BAR = 10


class Display:
    """On stderr, separate from piped output. `bounded` pipelines have an end, so progress can be shown."""

    def __init__(self, *, bounded: bool) -> None:
        self._bounded = bounded
        self._live: Live | None = None
        if sys.stderr.isatty():
            self._live = Live(console=Console(stderr=True), refresh_per_second=4, auto_refresh=False)
        self._said: dict[str, QueryState] = {}
        self._said_at = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, states: Sequence[QueryState]) -> None:
        if self._live is not None:
            self._live.update(self._table(states), refresh=True)
            return
        ended = [state for state in states if state.status == "ended"]
        if len(ended) == len(states) or time.monotonic() - self._said_at >= _LINE_SECONDS:
            self._said_at = time.monotonic()
            for state in states:
                if state != self._said.get(state.name) and state.batch >= 0:
                    self._said[state.name] = state
                    say(self._line(state))

    def _line(self, state: QueryState) -> str:
        behind = "" if state.behind is None else f", {state.behind:,} behind"
        done = f", {state.done:.0%} done" if self._bounded and state.done is not None else ""
        return (
            f"{state.name}: batch {state.batch}, {state.records:,} records, {state.rate:,.0f}/s{behind}, "
            f"{state.batch_ms:,} ms a batch{done}, {state.status}"
        )

    def _table(self, states: Sequence[QueryState]) -> Table:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in _COLUMNS:
            left = column in ("query", "state")
            table.add_column(column, justify="left" if left else "right", no_wrap=True)
        if self._bounded:
            table.add_column("done", min_width=_BAR)
        for state in states:
            cells: list[Text | ProgressBar] = [
                Text(printable(state.name)),
                Text("–" if state.batch < 0 else str(state.batch)),
                Text(f"{state.records:,}"),
                Text(f"{state.rate:,.0f}"),
                Text("–" if state.behind is None else f"{state.behind:,}"),
                Text(f"{state.batch_ms:,} ms"),
                Text(state.status, style="red" if state.status == "failed" else ""),
            ]
            if self._bounded:
                cells.append(_bar(state.done or 0.0))
            table.add_row(*cells)
        return table


def _bar(done: float) -> ProgressBar:
    # Colours that every terminal has.
    return ProgressBar(
        total=1.0, completed=done, width=_BAR, complete_style="green", finished_style="bold green"
    )
