"""docs/benchmarks-rocketmq.md, from what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from bench.report import machine
from bench.rocketmq.figures import Row
from bench.rocketmq.peers import POSTHOUSE, ROCKETMQ, SERVER_VERSION
from bench.rocketmq.plan import Plan
from bench.spark.figures import Spread

DOCUMENT: Final = Path("docs/benchmarks-rocketmq.md")
INTRODUCTION: Final = """# Benchmarks beside RocketMQ

`{command}` made this page at commit {commit}{reservation}. It shows Posthouse beside RocketMQ {version},
the real server, on the same machine, with the same clients. The machine is small and shared with other
work, so single figures vary by a factor of two. Trust the **ratios**: peers take turns, a ratio is taken
within each round, and above 1 Posthouse is better, whatever is measured. A figure is the middle of
{rounds} rounds with the smallest and the largest; backlog and delay are measured once.

- **Promises differ.** Posthouse answers a send when the message is synced to disk. RocketMQ answers from
  memory and syncs every 500 ms (`ASYNC_FLUSH`, its default): a power cut may take what it has
  acknowledged.
- **RocketMQ**: name server, and broker and proxy in one process (`ProxyStartup -pm local`) with a heap
  of 1 GiB; memory is that of this process. Its files are mapped into memory, so its resident memory
  contains page cache; the row *without mapped files* does not.
- **Remoting**: the Java client {version}, with its own settings. Each thread sends one message of {size}
  B and waits for the answer. The push consumer has its 20 threads and finds {consumed:,} messages.
- **gRPC**: `rocketmq-python-client`, one client, one request at a time. The client itself needs about as
  much processor time for a request as Posthouse.
- Broker and clients share the machine's cores, in a network namespace of their own, on loopback.

{machine}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    command: str
    commit: str
    plan: Plan
    is_complete: bool
    failures: Sequence[str] = ()
    """What could not be measured, and why."""


def write(rows: Sequence[Row], circumstances: Circumstances) -> None:
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document(rows, circumstances))


def document(rows: Sequence[Row], circumstances: Circumstances) -> str:
    plan = circumstances.plan
    introduction = INTRODUCTION.format(
        command=circumstances.command,
        commit=circumstances.commit,
        reservation=_reservation(circumstances),
        version=SERVER_VERSION,
        rounds=plan.rounds,
        size=plan.size,
        consumed=plan.consumed,
        machine=machine(("posthouse", "uvloop", "rocketmq-python-client")),
    )
    parts = [introduction.rstrip(), "", *_aims(rows)]
    for section, members in groupby(rows, key=lambda row: row.section):
        parts += [
            "",
            f"## {section}",
            "",
            f"| | {POSTHOUSE} | {ROCKETMQ} | ratio | aim |",
            "|---|---:|---:|---:|---|",
        ]
        parts += [line(row) for row in members]
    if circumstances.failures:
        parts += ["", "## Not measured", "", *[f"- {each}" for each in circumstances.failures]]
    return "\n".join(parts) + "\n"


def line(row: Row) -> str:
    cells = [row.name, *[_figure(row, peer) for peer in (POSTHOUSE, ROCKETMQ)], _ratio(row), _aim(row)]
    return f"| {' | '.join(cells)} |"


def _aims(rows: Sequence[Row]) -> list[str]:
    aims = [row for row in rows if row.aim]
    reached = sum(row.is_reached is True for row in aims)
    told = ["## Aims", "", f"{reached} of {len(aims)} aims are reached."]
    missed = [
        f"- {row.section}, {row.name}: {_figure(row, POSTHOUSE)}{_against(row)}; the aim was {row.aim}"
        for row in aims
        if not row.is_reached
    ]
    return [*told, "", *missed] if missed else told


def _against(row: Row) -> str:
    return f", {_ratio(row)} × {ROCKETMQ}" if row.ratio else ""


def _figure(row: Row, peer: str) -> str:
    spread = row.spread(peer)
    return "not measured" if spread is None else f"{_spread(spread)} {row.unit}"


def _ratio(row: Row) -> str:
    return "" if row.ratio is None else _spread(row.ratio, 2)


def _aim(row: Row) -> str:
    verdict = {True: "reached", False: "**missed**", None: "open"}[row.is_reached]
    return f"{row.aim}: {verdict}" if row.aim else ""


def _spread(spread: Spread, decimals: int | None = None) -> str:
    if decimals is None:
        decimals = 0 if spread.middle >= 100 or spread.middle == 0 else 2
    middle, low, high = (f"{each:,.{decimals}f}" for each in (spread.middle, spread.low, spread.high))
    return middle if spread.low == spread.high else f"{middle} ({low} – {high})"


def _reservation(circumstances: Circumstances) -> str:
    if not circumstances.is_complete:
        return ", **but did not come to its end**"
    return "" if circumstances.plan == Plan() else ", **not with the full volumes, as a trial**"
