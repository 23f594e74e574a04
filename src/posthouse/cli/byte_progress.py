"""A progress bar in bytes on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def byte_progress(doing: str) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """Two functions: one sets the total amount of work, one reports progress."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn(doing), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=None)
        yield (
            lambda total: progress.update(task, total=total),
            lambda size: progress.advance(task, size),
        )
