"""`make bench-cluster`: the shared storage beside the local engine, and docs/benchmarks-cluster.md."""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from rich.console import Console

from bench.cluster import (
    brokers,
    connections,
    contest,
    costs,
    failover,
    history,
    many,
    moving,
    partitions,
    report,
)
from bench.cluster.plan import Plan, Stage
from bench.cluster.servers import running_servers
from bench.queues.display import Display
from bench.scale.brokers import scratch
from bench.scale.figures import Row
from bench.scale.report import Chapter, Circumstances, missed_aims, told
from tools.checkout import commit


@dataclass(frozen=True, slots=True)
class Scenario:
    run: Callable[[Stage], Iterator[Row]]
    note: str


SCENARIOS = {
    "contest": Scenario(contest.contest, contest.NOTE),
    "brokers": Scenario(brokers.brokers, brokers.NOTE),
    "costs": Scenario(costs.costs, costs.NOTE),
    "connections": Scenario(connections.connections, connections.NOTE),
    "failover": Scenario(failover.failover, failover.NOTE),
    "moving": Scenario(moving.moving, moving.NOTE),
    "partitions": Scenario(partitions.partitions, partitions.NOTE),
    "many": Scenario(many.many, many.NOTE),
    "history": Scenario(history.history, history.NOTE),
}


def main() -> int:
    """1 if an aim was missed."""
    arguments = _parser().parse_args()
    plan = Plan(**{each.name: getattr(arguments, each.name) for each in fields(Plan)})
    is_trial = plan != Plan() or bool(arguments.only)
    given = shlex.join(sys.argv[1:])
    circumstances = Circumstances(
        command=f"python -m bench.cluster {given}" if given else "make bench-cluster",
        commit=commit(),
        is_trial=is_trial,
        is_complete=False,
    )
    chapters: list[Chapter] = []
    display = Display(Console())
    names = [name for name in SCENARIOS if not arguments.only or name in arguments.only]
    with scratch() as directory, running_servers(directory) as servers:
        display.say(f"objects are in {servers.object_store}")
        stage = Stage(plan, display, servers)
        for name in names:
            scenario = SCENARIOS[name]
            display.title(name)
            rows = list(told(display, scenario.run(stage)))
            chapters.append(Chapter(scenario.note, rows))
            if arguments.write or not is_trial:
                # After each, because a full run takes long.
                now = replace(circumstances, is_complete=name == names[-1])
                report.write(chapters, now, servers.object_store)
                display.say(f"written to {report.DOCUMENT}")
    missed = missed_aims([row for chapter in chapters for row in chapter.rows])
    for each in missed:
        display.say(each)
    return 1 if missed else 0


def _parser() -> argparse.ArgumentParser:
    full = Plan()
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--only", choices=sorted(SCENARIOS), action="append", help="run just this one")
    parser.add_argument("--seconds", type=float, default=full.seconds, help="of each load")
    parser.add_argument("--rounds", type=int, default=full.rounds)
    parser.add_argument("--partitions", type=int, default=full.partitions)
    parser.add_argument("--groups", type=int, default=full.groups)
    parser.add_argument(
        "--connections", type=int, default=full.connections, help="of clients, over three brokers"
    )
    parser.add_argument(
        "--idle-connections", type=int, default=full.idle_connections, help="of one protocol at one broker"
    )
    parser.add_argument("--history-bytes", type=int, default=full.history_bytes)
    parser.add_argument("--write", action="store_true", help="write the page after a trial too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
