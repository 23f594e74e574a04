"""docs/benchmarks-consistency.md, from what was measured."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.consistency.contenders import CONTENDERS, POSTHOUSE
from bench.consistency.figures import FIGURES, UNWANTED, Figure, Results
from bench.consistency.measuring import KEYS, VALUE_BYTES, Plan
from bench.report import machine
from bench.spark.figures import Spread

DOCUMENT: Final = Path("docs/benchmarks-consistency.md")
_PACKAGES: Final = (
    "posthouse",
    "psycopg",
    "confluent-kafka",
    "txoutbox",
    "faststream-outbox",
    "aiokafka",
    "pydbzengine",
)
_INTRODUCTION: Final = """# Benchmarks of the outbox

`{command}` made this page at commit {commit}{reservation}. It shows the relay of the
[outbox](outbox.md) beside others, on one PostgreSQL server, with one Posthouse broker as the target of all.
The machine is small and shared, so single figures vary by a factor of two or more. Trust the **ratios**:
relays take turns, a ratio is taken within each round, and above 1 Posthouse is better, whatever is measured.
A figure is the middle of {rounds} rounds with the smallest and the largest.

- **rows that wait**: {rows:,} messages with {keys} keys and {size} B are committed in one transaction; the
  time ends when the consumer has the last of them.
- **commit to consumer**: transactions with one message each, {rate} a second for {seconds:g} s. The time
  begins when the commit is answered, and ends when a `read_committed` consumer of librdkafka has the message.
- **CPU**: user and system time of the relay, of all processes of PostgreSQL, and of the broker, for each
  message, until the outbox is empty. That of single rows includes their inserts.
- PostgreSQL and the broker sync to the disk. Relay, servers and consumer share the cores.

What the relays do is not the same:

{promises}

*Written by hand* is `bench/consistency/relays/poller.py`: 500 rows by `FOR UPDATE SKIP LOCKED`, an idempotent
producer of librdkafka, then `DELETE`; it asks again every 50 ms. txoutbox and faststream-outbox are as their
documentation shows them, with LISTEN/NOTIFY, and batches of 500. Debezium runs embedded (pydbzengine), reads
the write-ahead log, and sends with librdkafka; it leaves the rows in the table.

{machine}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    command: str
    commit: str
    plan: Plan


def document(results: Results, circumstances: Circumstances) -> str:
    plan = circumstances.plan
    promises = "\n".join(f"- {each.name}: {each.promise}." for each in CONTENDERS)
    introduction = _INTRODUCTION.format(
        command=circumstances.command,
        commit=circumstances.commit,
        reservation="" if plan == Plan() else ", **not with the full volumes, as a trial**",
        rounds=plan.rounds,
        rows=plan.rows,
        keys=KEYS,
        size=VALUE_BYTES,
        rate=plan.rate,
        seconds=plan.seconds,
        promises=promises,
        machine=machine([each for each in _PACKAGES if _is_installed(each)]),
    )
    names = [each.name for each in CONTENDERS if results.rounds.get(each.name)]
    others = [each for each in names if each != POSTHOUSE]
    parts = [introduction.rstrip(), "", "## Figures", "", *_table(results, names)]
    parts += ["", f"## How many times as good {POSTHOUSE} is", "", *_ratios(results, others)]
    if results.missing:
        parts += ["", "## Not measured", "", *[f"- {name}: {why}" for name, why in results.missing.items()]]
    return "\n".join(parts) + "\n"


def _table(results: Results, names: list[str]) -> list[str]:
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---:|' * len(names)}"]
    for figure in FIGURES:
        cells = [_shown(results.spread(each, figure)) for each in names]
        lines.append(f"| {figure.title}, {figure.unit} | {' | '.join(cells)} |")
    for what in UNWANTED:
        cells = [f"{results.unwanted(each, what):,}" for each in names]
        lines.append(f"| messages {what} | {' | '.join(cells)} |")
    return lines


def _ratios(results: Results, others: list[str]) -> list[str]:
    lines = [f"| | {' | '.join(others)} |", f"|---|{'---:|' * len(others)}"]
    for figure in FIGURES:
        cells = [_ratio(results, each, figure) for each in others]
        lines.append(f"| {figure.title} | {' | '.join(cells)} |")
    return lines


def _ratio(results: Results, other: str, figure: Figure) -> str:
    return _shown(results.ratio(POSTHOUSE, other, figure), decimals=2)


def _shown(spread: Spread | None, decimals: int | None = None) -> str:
    if spread is None:
        return "not measured"
    if decimals is None:
        decimals = 0 if spread.middle >= 100 else 1
    middle, low, high = (f"{each:,.{decimals}f}" for each in (spread.middle, spread.low, spread.high))
    return middle if spread.low == spread.high else f"{middle} ({low} – {high})"


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except ModuleNotFoundError:
        return False
    return True


def write(results: Results, circumstances: Circumstances) -> None:
    DOCUMENT.write_text(document(results, circumstances))
