"""`make bench-queues`: measure queues beside RabbitMQ and Redis, and write docs/benchmarks-queues.md."""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from rich.console import Console

from bench.queues import report
from bench.queues.backlog import backlog
from bench.queues.contests import Plan, Stage
from bench.queues.display import Display
from bench.queues.enqueueing import enqueueing
from bench.queues.fan_out import fan_out
from bench.queues.figures import Row
from bench.queues.floor import floor
from bench.queues.latency import latency
from bench.queues.many_queues import many_queues
from bench.queues.peers import AMQP_PEERS, RABBITMQ, REDIS_PEERS, Peer
from tools.checkout import commit

SCENARIOS: dict[str, Callable[[Stage], Iterator[Row]]] = {
    "floor": floor,
    "enqueueing": enqueueing,
    "fan-out": fan_out,
    "latency": latency,
    "many-queues": many_queues,
    "backlog": backlog,
}
_AMQP = {peer.name.lower(): peer for peer in AMQP_PEERS}
_REDIS = "redis"


def main() -> None:
    arguments = _parser().parse_args()
    plan = Plan(
        messages=arguments.messages,
        sizes=tuple(arguments.sizes),
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        backlog=arguments.backlog,
        rabbitmq_backlog=min(arguments.rabbitmq_backlog, arguments.backlog),
        queues=arguments.queues,
        peers=_chosen(arguments.peers),
        backlog_peers=_chosen(arguments.backlog_peers or arguments.peers),
        redis_peers=REDIS_PEERS if _REDIS in arguments.peers else (),
    )
    stage = Stage(plan, Display(Console()))
    is_trial = plan != Plan() or bool(arguments.only)
    given = shlex.join(sys.argv[1:])
    circumstances = report.Circumstances(
        command=f"python -m bench.queues {given}" if given else "make bench-queues",
        commit=commit(),
        plan=plan,
        is_trial=is_trial,
        is_complete=False,
        versions={peer.product: peer.version() for peer in (*plan.peers, *plan.redis_peers)},
    )
    rows: list[Row] = []
    names = [name for name in SCENARIOS if not arguments.only or name in arguments.only]
    for name in names:
        rows += _told(stage, SCENARIOS[name](stage))
        if arguments.write or not is_trial:
            # After each, because a full run takes hours.
            report.write(rows, replace(circumstances, is_complete=name == names[-1]))
            stage.display.say(f"written to {report.DOCUMENT}")


def _parser() -> argparse.ArgumentParser:
    full = Plan()
    parser = argparse.ArgumentParser(prog="python -m bench.queues", description=__doc__)
    parser.add_argument("--only", choices=sorted(SCENARIOS), action="append", help="run just this one")
    parser.add_argument("--messages", type=int, default=full.messages, help="per queue and size")
    parser.add_argument("--sizes", type=int, nargs="+", default=full.sizes, help="of messages, in bytes")
    parser.add_argument("--rounds", type=int, default=full.rounds)
    parser.add_argument("--seconds", type=float, default=full.seconds, help="of latency and backlog")
    parser.add_argument("--queues", type=int, default=full.queues, help="that are declared and deleted")
    parser.add_argument("--backlog", type=int, default=full.backlog, help="messages that wait")
    parser.add_argument(
        "--rabbitmq-backlog", type=int, default=full.rabbitmq_backlog, help="the same, for RabbitMQ"
    )
    parser.add_argument("--peers", nargs="+", choices=(*_AMQP, _REDIS), default=[*_AMQP, _REDIS])
    parser.add_argument("--backlog-peers", nargs="+", choices=(*_AMQP,), help="for the backlog alone")
    parser.add_argument("--write", action="store_true", help="write the page after a trial too")
    return parser


def _chosen(names: Sequence[str]) -> tuple[Peer, ...]:
    return tuple(peer for name, peer in _AMQP.items() if name in names)


def _told(stage: Stage, rows: Iterable[Row]) -> Iterator[Row]:
    """The same rows, each shown as soon as it is there."""
    section = ""
    for row in rows:
        if row.section != section:
            section = row.section
            stage.display.title(section)
        stage.display.say(f"  {_line(row)}")
        yield row


def _line(row: Row) -> str:
    figures = [f"{peer} {report.figure(row, peer)}" for peer in row.rounds]
    ratio = report.ratio(row)
    against = f"{ratio} × {RABBITMQ}" if ratio else ""
    return f"{row.name}: " + "  ".join(filter(None, [*figures, against, report.aims(row)]))


if __name__ == "__main__":
    main()
