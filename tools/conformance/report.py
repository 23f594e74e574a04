"""What a person sees of a run, and the JSON file that a program reads."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from tools.conformance.expectations import Verdict
from tools.conformance.results import Outcome, SuiteRun, TestResult

_STYLES = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.SKIPPED: "yellow"}


class Progressing:
    """Steps and counts of one suite, updated in place; on a pipe, one line for each failure."""

    def __init__(self, console: Console, progress: Progress, suite: str) -> None:
        self._console = console
        self._progress = progress
        self._task = progress.add_task(suite, total=None)
        self._suite = suite
        self._counts = dict.fromkeys(Outcome, 0)

    def step(self, what: str) -> None:
        self._progress.update(self._task, description=f"{self._suite}: {what} …")
        if not self._console.is_terminal:
            self._console.print(f"{self._suite}: {what}", highlight=False)

    def result(self, result: TestResult) -> None:
        self._counts[result.outcome] += 1
        counts = ", ".join(
            f"[{_STYLES[outcome]}]{count} {outcome}[/]" for outcome, count in self._counts.items() if count
        )
        self._progress.update(self._task, description=f"{self._suite}: {counts}  {escape(result.name)}")
        if result.outcome is Outcome.FAILED:
            self._console.print(f"  [red]failed[/] {escape(result.name)}  {escape(result.detail[:160])}")


@contextmanager
def progressing(console: Console, suite: str) -> Iterator[Progressing]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield Progressing(console, progress, suite)


def show(console: Console, run: SuiteRun, verdict: Verdict) -> None:
    _show_failures(console, run, verdict)
    skipped = [each for each in run.results if each.outcome is Outcome.SKIPPED]
    for each in skipped:
        console.print(f"  [yellow]skipped[/] {escape(each.name)}  {escape(each.detail[:160])}")
    for name in verdict.repaired:
        console.print(f"  [green]passes now[/] {escape(name)}: take it off known_failures.toml")
    _show_counts(console, run)
    # Alone on its line, and in this form, because programs look for it.
    passed, failed = run.count(Outcome.PASSED), run.count(Outcome.FAILED)
    console.print(
        f"{run.suite}: {passed} passed, {failed} failed, {len(skipped)} skipped",
        highlight=False,
        soft_wrap=True,
    )


def _show_failures(console: Console, run: SuiteRun, verdict: Verdict) -> None:
    if not verdict.unexpected and not verdict.known:
        return
    name = Column("test", overflow="fold")
    table = Table(name, "seconds", "why", title=f"{run.suite} {run.version}: failures", title_justify="left")
    for each in verdict.unexpected:
        table.add_row(f"[red]{escape(each.name)}[/]", f"{each.seconds:.1f}", escape(each.detail[:400]))
    for each, reason in verdict.known:
        table.add_row(escape(each.name), f"{each.seconds:.1f}", f"known: {escape(reason)}")
    console.print(table)


def _show_counts(console: Console, run: SuiteRun) -> None:
    table = Table(f"{run.suite} {run.version}", *Outcome)
    for group in run.groups:
        table.add_row(group, *(str(run.count(outcome, group)) for outcome in Outcome))
    table.add_row("left out, with a reason", "", "", str(len(run.excluded)))
    console.print(table)


def write(directory: Path, run: SuiteRun, verdict: Verdict) -> Path:
    file = directory / f"results-{run.suite}.json"
    content = {
        "suite": run.suite,
        "version": run.version,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "counts": {
            group: {outcome: run.count(outcome, group) for outcome in Outcome} for group in run.groups
        },
        "unexpected_failures": [each.name for each in verdict.unexpected],
        "known_failures": {each.name: reason for each, reason in verdict.known},
        "repaired": list(verdict.repaired),
        "results": [asdict(each) for each in run.results],
        "excluded": run.excluded,
    }
    file.write_text(json.dumps(content, indent=2) + "\n")
    return file
