"""How far a torture run is: a table that moves on a terminal, lines anywhere else."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tests.torture.report import Run


class Progress:
    """Where figures go as they come. The time that is left is shown, and asked for, here."""

    def __init__(self, run: Run, deadline: float) -> None:
        self._run = run
        self._deadline = deadline

    @property
    def has_time(self) -> bool:
        return time.monotonic() < self._deadline

    def round(self, kind: str) -> bool:
        """One more round of a campaign is over. Whether there is time for more."""
        return self.has_time

    def campaign(self, kind: str) -> None:
        """A campaign is over, and its figures are in the run."""
        each = self._run.of(kind)
        text = f"{kind}: {each.rounds:,} rounds, {each.operations:,} operations, {each.anomalies:,} anomalies"
        self.say(f"{text}, {each.seconds:.0f} s")

    def say(self, text: str) -> None:
        print(text, flush=True)


class _MovingTable(Progress):
    def __init__(self, run: Run, deadline: float, live: Live) -> None:
        super().__init__(run, deadline)
        self._live = live
        self._under_way = ("", 0)

    def round(self, kind: str) -> bool:
        self._under_way = (kind, self._under_way[1] + 1)
        self._show()
        return super().round(kind)

    def campaign(self, kind: str) -> None:
        self._under_way = ("", 0)
        self._show()

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def _show(self) -> None:
        table = Table("fault", "rounds", "operations", "anomalies", "control", "seconds", title=self._title())
        kind, rounds = self._under_way
        if kind:
            self._run.of(kind)
        for each in self._run.figures.values():
            under_way = rounds if each.kind == kind else 0
            anomalies = f"[red]{each.anomalies:,}[/red]" if each.anomalies else "0"
            figures = (f"{each.rounds + under_way:,}", f"{each.operations:,}", anomalies)
            table.add_row(each.kind, *figures, each.control, f"{each.seconds:.0f}")
        self._live.update(table)

    def _title(self) -> str:
        if self._deadline == math.inf:
            return self._run.command
        left = max(self._deadline - time.monotonic(), 0)
        return f"{self._run.command}: {left / 60:.1f} minutes left"


@contextmanager
def make_progress(run: Run, deadline: float) -> Iterator[Progress]:
    console = Console()
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            yield _MovingTable(run, deadline, live)
    else:
        yield Progress(run, deadline)
