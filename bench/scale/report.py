"""The figures as a page with tables."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bench import report
from bench.queues.display import Display
from bench.scale.figures import Row, Verdict
from bench.spark.figures import Spread

DOCUMENT = Path("docs/benchmarks-scale.md")
_PACKAGES = ("posthouse", "uvloop")

INTRODUCTION = """# Benchmarks of scale

`{command}` made this page at commit {commit}{reservation}.
It shows a broker with many connections, topics or records, and under overload. Every broker is `posthouse
serve` in its own process, on loopback, with its data on disk. Figures vary on machines that are small and
shared, and the load generators share the broker's cores: trust comparisons within the run. If something was
measured more than once, the tables show the median and, in brackets, the lowest and the highest.
"""


@dataclass(frozen=True, slots=True)
class Chapter:
    """What one scenario found."""

    note: str
    """How it was measured."""
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """How the figures came about."""

    command: str
    commit: str
    is_trial: bool
    is_complete: bool
    """All that was asked for has been measured."""


def write(chapters: Sequence[Chapter], circumstances: Circumstances) -> None:
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document(chapters, circumstances))


def document(
    chapters: Sequence[Chapter],
    circumstances: Circumstances,
    *,
    introduction: str = INTRODUCTION,
    packages: Sequence[str] = _PACKAGES,
) -> str:
    parts = [
        introduction.format(
            command=circumstances.command,
            commit=circumstances.commit,
            reservation=_reservation(circumstances),
        ),
        report.machine(packages),
        *_aims([row for chapter in chapters for row in chapter.rows]),
    ]
    for chapter in chapters:
        for number, (section, members) in enumerate(groupby(chapter.rows, key=lambda row: row.section)):
            rows = list(members)
            parts += ["", f"## {section}", ""]
            if number == 0 and chapter.note:
                parts += [chapter.note, ""]
            if any(row.yardstick for row in rows):
                parts += ["| | | ratio | aim |", "|---|---:|---:|---:|"]
                parts += [f"| {row.name} | {figure(row)} | {ratio(row)} | {aims(row)} |" for row in rows]
            else:
                parts += ["| | | aim |", "|---|---:|---:|"]
                parts += [f"| {row.name} | {figure(row)} | {aims(row)} |" for row in rows]
    return "\n".join(parts) + "\n"


def told(display: Display, rows: Iterable[Row]) -> Iterator[Row]:
    """The same rows, each shown as soon as it is there."""
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            display.title(section)
        found = aims(row)
        display.say(f"  {row.name}: {_found(row)}" + (f"   {found}" if found else ""))
        yield row


def figure(row: Row) -> str:
    return f"{_shown(row.spread)} {row.unit}"


def ratio(row: Row) -> str:
    return "" if row.ratio is None else f"{_shown(row.ratio)} × {row.yardstick_name}"


def aims(row: Row) -> str:
    """What should have been reached, and whether it was."""
    return "; ".join(f"{aim}: {verdict}" for aim, verdict in row.aims())


def missed_aims(rows: Sequence[Row]) -> list[str]:
    """A sentence for each."""
    return [
        f"missed: {row.section}, {row.name}: {_found(row)}; the aim was {aim}"
        for row in rows
        for aim, verdict in row.aims()
        if verdict is Verdict.MISSED
    ]


def _aims(rows: Sequence[Row]) -> list[str]:
    missed = [f"- {each}" for each in missed_aims(rows)]
    count = sum(len(row.aims()) for row in rows)
    reached = f"{count - len(missed)} of {count} aims are reached."
    return ["## Aims", "", reached, *([""] if missed else []), *missed]


def _found(row: Row) -> str:
    return figure(row) if row.ratio is None else f"{figure(row)}, {ratio(row)}"


def _reservation(circumstances: Circumstances) -> str:
    if not circumstances.is_complete:
        return ", **but did not come to its end**"
    return ", **not with the full volumes, as a trial**" if circumstances.is_trial else ""


def _shown(spread: Spread) -> str:
    middle = _number(spread.middle)
    if spread.low == spread.high:
        return middle
    return f"{middle} ({_number(spread.low)} to {_number(spread.high)})"


def _number(value: float) -> str:
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"
