"""The figures as a page with tables and a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyspark

from bench import report
from bench.scenarios import Row
from bench.spark.figures import Entry, Line, Missing, Ratio, Spread
from bench.spark.sessions import HEAP, MASTER

DOCUMENT = Path("docs/benchmarks-spark.md")
PICTURE = Path("docs/benchmarks-spark.svg")
_PACKAGES = ("posthouse", "pyspark", "pyarrow")
_LABEL = 310
"""Names are longer here."""

INTRODUCTION = """# Benchmarks of the Spark side

`{command}` made this page{trial}.
It compares our Spark source and sink with Parquet and with Spark's Kafka connector. Single figures vary
on machines that are small and shared. Trust the **ratios**, which compare contenders that took turns in
the same run.

![Rows per second](benchmarks-spark.svg)

- **How.** The broker runs in its own process, the topic has four partitions, and Spark runs on `{master}`
  with a heap of {heap}. Broker, JVM and Python workers share the machine's cores. Every contender reads
  the whole topic into Spark's `noop`, with all seven columns unless noted. Its rows are counted once
  beforehand, one round is a warm-up, then all take turns for {rounds} rounds. The tables show the median
  and, in brackets, the lowest and the highest. A ratio is computed within each round.
- **Rows.** Keys of 8 bytes and values of hexadecimal digits, which zstd halves. Batches of 1 MB, not
  compressed, unless noted. MB/s count the keys and values that are read. Everything fits into memory.
- **Reading.** (a) `format("posthouse")`; (a′) the same with `POSTHOUSE_PURE=1`. (b) A Python data source
  that has the same rows ready as Arrow batches of the same size and only returns them: the upper limit of
  the API. (c) An archive of the topic, by the option `archive=DIR`, and (c′) by `read_archive`. (d) The
  same rows as Parquet with zstd, in the same row groups. (e) `format("kafka")`, Spark's own connector,
  which reads from the same broker in Java, with default settings; (e′) with fetches as large as ours and
  10,000 records a poll.
- **Writing.** Key and value of rows from Parquet: (f) our sink, (g) the connector's, (h) `noop`.
- **Micro-batches.** Times are `triggerExecution` as Spark reports it, of triggers without a pause in
  between; the checkpoint is on the local disk. Here the brackets show the shortest and the longest of all
  triggers, and a ratio says how many times as long.
- (a′), (e), (e′) and (g) run in a JVM of their own, which is idle while others run.
"""

OTHER_RELEASE = """\
- (e), (e′) and (g) are the connector of Spark {connector} on Spark {spark}, not the one of this release.
  These figures do not show what that one would reach, so the aim (a) ≥ 1.50 × e is open.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """How the figures came about."""

    command: str
    rounds: int
    is_trial: bool
    connector: str
    """The version that was asked for."""


def write(entries: Sequence[Entry], circumstances: Circumstances) -> None:
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document(entries, circumstances))
    PICTURE.write_text(picture(entries))


def document(entries: Sequence[Entry], circumstances: Circumstances) -> str:
    trial = ", **at a small scale, as a trial: its figures are mostly start-up**"
    parts = [
        INTRODUCTION.format(
            command=circumstances.command,
            trial=trial if circumstances.is_trial else "",
            master=MASTER,
            heap=HEAP,
            rounds=circumstances.rounds,
        )
        + _other_release(circumstances.connector),
        report.machine(_PACKAGES),
        *_aims(entries),
    ]
    for section, members in groupby(entries, key=lambda entry: entry.section):
        parts += ["", f"## {section}", "", *_table(list(members))]
    return "\n".join(parts) + "\n"


def picture(entries: Sequence[Entry]) -> str:
    """Throughput only: a bar says little about a time that should be short."""
    rates = [entry for entry in entries if isinstance(entry, Line) and entry.unit == "rows/s"]
    if not rates:
        raise ValueError("there is nothing to draw; run the reading or the writing part")
    rows = [
        Row(section=line.section, name=line.name, value=line.value.middle / 1e6, unit="M rows/s")
        for line in rates
    ]
    yardsticks = {(line.section, line.name) for line in rates if line.is_yardstick}
    return report.picture(rows, lambda row: (row.section, row.name) in yardsticks, decimals=2, label=_LABEL)


def figure(line: Line) -> str:
    return f"{_spread(line.value, 0 if line.value.middle >= 1000 else 1)} {line.unit}"


def ratio(each: Ratio) -> str:
    return f"{_spread(each.spread, 2)} × {each.to}"


def ratios(line: Line) -> str:
    return "; ".join(ratio(each) for each in line.ratios)


def aims(line: Line) -> str:
    """What should have been reached, and whether it was."""
    return "; ".join(
        f"≥ {each.aim:.2f} × {each.to}: {'reached' if each.is_met else 'missed'}"
        for each in line.ratios
        if each.aim is not None
    )


def _spread(spread: Spread, decimals: int) -> str:
    middle, low, high = (f"{each:,.{decimals}f}" for each in (spread.middle, spread.low, spread.high))
    return f"{middle} ({low} – {high})"


def _other_release(connector: str) -> str:
    if connector == pyspark.__version__:
        return ""
    return OTHER_RELEASE.format(connector=connector, spark=pyspark.__version__)


def _aims(entries: Sequence[Entry]) -> list[str]:
    lines = [entry for entry in entries if isinstance(entry, Line)]
    told = [(line, each) for line in lines for each in line.ratios if each.aim is not None]
    absent = [entry for entry in entries if isinstance(entry, Missing)]
    if not told and not absent:
        return []
    missed = [
        f"- missed: {line.section}, {line.name}: {ratio(each)}, and {each.aim:.2f} was the aim"
        for line, each in told
        if not each.is_met
    ]
    by_reason: dict[str, list[Missing]] = {}
    for entry in absent:
        by_reason.setdefault(entry.reason, []).append(entry)
    return [
        "## Aims",
        "",
        f"{len(told) - len(missed)} of {len(told)} comparisons that have an aim reached it.",
        "",
        *missed,
        *[_not_measured(reason, entries) for reason, entries in by_reason.items()],
    ]


def _not_measured(reason: str, entries: Sequence[Missing]) -> str:
    names = dict.fromkeys(entry.name for entry in entries)
    aims = dict.fromkeys(aim for entry in entries for aim in entry.open_aims)
    still_open = f"; whether {' and '.join(aims)} is open" if aims else ""
    return f"- not measured: {', '.join(names)}: {reason}{still_open}"


def _table(members: Sequence[Entry]) -> list[str]:
    lines = ["| | | MB/s | ratio | aim |", "|---|---:|---:|---:|---:|"]
    for entry in members:
        if isinstance(entry, Missing):
            lines.append(f"| {entry.name} | not measured | | | |")
        else:
            rate = "" if entry.megabytes is None else f"{entry.megabytes:,.0f}"
            lines.append(f"| {entry.name} | {figure(entry)} | {rate} | {ratios(entry)} | {aims(entry)} |")
    return lines
