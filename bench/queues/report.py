"""The figures as a page with tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bench import report
from bench.queues import fan_out, latency, loads
from bench.queues.contests import Plan
from bench.queues.figures import Row, Verdict
from bench.queues.peers import POSTHOUSE, RABBITMQ
from bench.spark.figures import Spread

DOCUMENT = Path("docs/benchmarks-queues.md")
_PACKAGES = ("uvloop",)
_MAIN = (POSTHOUSE, RABBITMQ)

INTRODUCTION = """# Benchmarks of the queues

`{command}` made this page at commit {commit}{reservation}.
It compares queues with RabbitMQ and Redis. Single figures vary on machines that are small and shared.
Trust the **ratios**, which compare peers that took turns in the same run.

- **How.** Every measurement has its own fresh broker, on loopback, with an empty directory on the same
  disk. No other broker runs meanwhile, except where there is a backlog. Peers take turns for {rounds}
  rounds, and each round starts with another peer. The tables show the median round and, in brackets, the
  lowest and the highest. A ratio is computed within each round and says how many times as good Posthouse
  is: above 1 it is ahead, whether more or less is better.
- **Load.** Raw sockets in Python, one process per connection, messages encoded beforehand, {chunk} sent
  with one call, responses counted by their length (`bench/queues/loads.py`). *The generator alone* is the
  same load against a server that only counts (`bench/queues/sink.py`), which is the most that can be
  measured. Brokers and generator share the machine's cores.
- **AMQP.** Durable classic queues, persistent messages of random bytes, publisher confirms with at most
  {window:,} unconfirmed, a prefetch of {prefetch:,}, one ack for every {ack_every} messages. A queue
  counts as drained when the broker has answered a method that was sent after the last ack, and no message
  is left.
- **RabbitMQ** is Debian's package with its own settings. **Redis** is Debian's package with an
  append-only file, synced every second (*everysec*: a confirmed message may be lost) or before every
  response (*always*); its file is never rewritten. As many commands are in flight as AMQP has messages. A
  *list* has no acks: LPUSH, RPOP. A *stream* has them: XADD, XREADGROUP and XACK of {ack_every}, without
  trimming.
- **Fan-out.** {fan_out_size} B. One consumer drains all queues and counts the deliveries.
- **Latency.** {latency_size:,} B, from the moment a message was due: *delivered* when a consumer on
  another connection has it, *confirmed* when its publisher has the confirm. A broker may deliver a
  message before it is on disk. The load is sent in ticks of a millisecond: first at half of the
  throughput that this broker has just reached with publisher and consumer working at once; then, for all
  peers, at half of the lowest.
- **Backlog.** Publisher and consumer work at once and keep the queue at its length. Two brokers, one with
  an empty queue and one with the backlog, take turns, each for {seconds:g} s a round; the peers follow
  one another. Memory is the highest resident set of the broker.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """How the figures came about."""

    command: str
    commit: str
    plan: Plan
    is_trial: bool
    is_complete: bool
    """All that was asked for has been measured."""
    versions: Mapping[str, str]


def write(rows: Sequence[Row], circumstances: Circumstances) -> None:
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document(rows, circumstances))


def document(rows: Sequence[Row], circumstances: Circumstances) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in circumstances.versions.items())
    parts = [
        INTRODUCTION.format(
            command=circumstances.command,
            commit=circumstances.commit,
            reservation=_reservation(circumstances),
            rounds=circumstances.plan.rounds,
            seconds=circumstances.plan.seconds,
            chunk=loads.CHUNK,
            window=loads.WINDOW,
            prefetch=loads.PREFETCH,
            ack_every=loads.ACK_EVERY,
            fan_out_size=fan_out.SIZE,
            latency_size=latency.SIZE,
        ),
        report.machine(_PACKAGES).rstrip().removesuffix(".") + f"; {_memory()}; {versions}.",
        "",
        *_aims(rows),
    ]
    for section, members in groupby(rows, key=lambda row: row.section):
        parts += ["", f"## {section}", "", *_tables(list(members))]
    return "\n".join(parts) + "\n"


def figure(row: Row, peer: str) -> str:
    spread = row.spread(peer)
    return "not measured" if spread is None else f"{_spread(spread)} {row.unit}"


def ratio(row: Row) -> str:
    return "" if (spread := row.ratio(RABBITMQ)) is None else _spread(spread, 2)


def aims(row: Row) -> str:
    """What should have been reached, and whether it was."""
    return "; ".join(f"{aim}: {verdict}" for aim, verdict in row.aims())


def _reservation(circumstances: Circumstances) -> str:
    if not circumstances.is_complete:
        return ", **but did not come to its end**"
    return ", **not with the full volumes, as a trial**" if circumstances.is_trial else ""


def _memory() -> str:
    total = Path("/proc/meminfo").read_text().split()[1]
    return f"{int(total) / 1024**2:.0f} GiB of memory"


def _spread(spread: Spread, decimals: int | None = None) -> str:
    if decimals is None:
        decimals = 0 if spread.middle >= 100 else 2
    middle, low, high = (f"{each:,.{decimals}f}" for each in (spread.middle, spread.low, spread.high))
    return middle if spread.low == spread.high else f"{middle} ({low} – {high})"


def _aims(rows: Sequence[Row]) -> list[str]:
    told = [(row, aim, verdict) for row in rows for aim, verdict in row.aims()]
    if not told:
        return []
    reached = sum(verdict is Verdict.REACHED for _, _, verdict in told)
    lines = ["## Aims", "", f"{reached} of {len(told)} aims are reached."]
    listed = [
        f"- {verdict}: {row.section}, {row.name}: {_instead(row, verdict)}the aim was {aim}"
        for row, aim, verdict in told
        if verdict is not Verdict.REACHED
    ]
    return [*lines, "", *listed] if listed else lines


def _instead(row: Row, verdict: Verdict) -> str:
    if verdict is Verdict.OPEN:
        absent = [peer for peer in _MAIN if not row.rounds.get(peer)]
        return f"{' and '.join(absent)} not measured; "
    against = f", {ratio(row)} × {RABBITMQ}" if ratio(row) else ""
    return f"{figure(row, POSTHOUSE)}{against}; "


def _tables(rows: Sequence[Row]) -> list[str]:
    """The two that have to be compared; then the others, if there are any, beside Posthouse."""
    measured = dict.fromkeys(peer for row in rows for peer in row.rounds)
    others = [peer for peer in measured if peer not in _MAIN]
    lines: list[str] = []
    if any(peer in measured for peer in _MAIN) or not others:
        lines += [
            f"| | {POSTHOUSE} | {RABBITMQ} | ratio | aim |",
            "|---|---:|---:|---:|---:|",
            *[_line(row.name, *[figure(row, peer) for peer in _MAIN], ratio(row), aims(row)) for row in rows],
        ]
    if others:
        lines += [""] if lines else []
        lines += [
            _line("", *others),
            "|---|" + "---:|" * len(others),
            *[_line(row.name, *[_beside(row, peer) for peer in others]) for row in rows],
        ]
    reasons = {peer: reason for row in rows for peer, reason in row.missing.items()}
    if reasons:
        lines += ["", *[f"- not measured: {peer}: {reason}" for peer, reason in reasons.items()]]
    return lines


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _beside(row: Row, peer: str) -> str:
    against = row.ratio(peer)
    return figure(row, peer) + (f"; ratio {against.middle:.2f}" if against else "")
