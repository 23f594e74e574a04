"""What is going on, for whoever waits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.queues.workers import Tally


class Display:
    def __init__(self, console: Console) -> None:
        self._console = console
        self.stage = ""
        """Who is measured, and in which round."""

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def title(self, text: str) -> None:
        self._console.print(f"\n[bold]{text}[/bold]", highlight=False)

    @contextmanager
    def counting(self, doing: str, total: int, tally: Tally) -> Iterator[Callable[[], None]]:
        """A bar for one step. What is given has to be called to move it."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        progress = Progress(
            *columns,
            console=self._console,
            transient=True,
            refresh_per_second=4,
            disable=not self._console.is_terminal,
        )
        with progress:
            task = progress.add_task(f"{self.stage}: {doing}", total=total)
            yield lambda: progress.update(task, completed=tally.value)

    @contextmanager
    def waiting(self, doing: str) -> Iterator[None]:
        with self._console.status(f"{self.stage}: {doing}", refresh_per_second=4):
            yield
