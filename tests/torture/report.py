"""Figures of torture runs: a table between two marks of docs/reliability.md, and the same as JSON beside it.

There is a row for each kind of fault. It is of one run, whose commit and command it names: of the latest one
that has enough rounds (`ENOUGH_ROUNDS`, or as many as the row has), or that found something.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

BEGIN = "<!-- figures of make torture: begin -->"
END = "<!-- figures of make torture: end -->"
ENOUGH_ROUNDS = 20
"""A good run of so many shows more of today's broker than a longer one of an older broker."""


@dataclass(slots=True)
class Figures:
    """What was done of one kind of fault, in one run."""

    kind: str
    command: str
    date: str
    commit: str = ""
    """The one that was tested; empty in rows of runs that did not record it."""
    store: str = ""
    """Where brokers had their objects; empty if they have none, or if the run did not record it."""
    campaigns: int = 0
    rounds: int = 0
    operations: int = 0
    faults: int = 0
    anomalies: int = 0
    seconds: float = 0.0
    control: str = ""
    """What was found where a promise was broken on purpose; empty if nothing was, which is a failure."""

    @property
    def is_good(self) -> bool:
        return bool(self.control) and not self.anomalies


@dataclass(slots=True)
class Run:
    """One command, and what it came to."""

    command: str
    date: str
    commit: str
    figures: dict[str, Figures]

    def of(self, kind: str) -> Figures:
        return self.figures.setdefault(kind, Figures(kind, self.command, self.date, self.commit))


def table(rows: dict[str, Figures]) -> str:
    lines = [
        "| fault | rounds | faults | data directories | operations | anomalies | control "
        "| minutes | object store | commit | run |",
        "|---|---:|---:|---:|---:|---:|---|---:|---|---|---|",
    ]
    lines += [
        f"| {each.kind} | {each.rounds:,} | {each.faults:,} | {each.campaigns:,} | {each.operations:,} "
        f"| {each.anomalies:,} | {f'caught: {each.control}' if each.control else 'MISSED'} "
        f"| {each.seconds / 60:.1f} | {each.store} | {each.commit or 'not recorded'} "
        f"| {each.date}, `{each.command}` |"
        for each in rows.values()
    ]
    return "\n".join(lines)


def merged(before: dict[str, Figures], run: Run) -> dict[str, Figures]:
    """The rows of all runs, with those of this run that take the place of an earlier one."""
    rows = dict(before)
    for kind, new in run.figures.items():
        old = rows.get(kind)
        if new.rounds and (old is None or not new.is_good or new.rounds >= _needed(old)):
            rows[kind] = new
    return rows


def _needed(old: Figures) -> int:
    """Rounds of a good run that replaces the row. What was found may be rare: that needs as many again."""
    return min(old.rounds, ENOUGH_ROUNDS) if old.is_good else old.rounds


def around(page: Path) -> tuple[str, str]:
    """What stands before and behind the table. Raises where there is no page, or no place in it."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for figures: {BEGIN} and {END}")
    return before, after


def write(run: Run, page: Path) -> None:
    """Bring the table of the page, and the file beside it, up to date."""
    before, after = around(page)
    beside = page.with_suffix(".json")
    rows = merged(load(beside) if beside.exists() else {}, run)
    page.write_text(f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{after}", encoding="utf-8")
    save(rows, beside)


def save(rows: dict[str, Figures], path: Path) -> None:
    path.write_text(json.dumps([asdict(each) for each in rows.values()], indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> dict[str, Figures]:
    return {each["kind"]: Figures(**each) for each in json.loads(path.read_text(encoding="utf-8"))}
