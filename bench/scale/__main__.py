"""`make bench-scale`: much of everything, and docs/benchmarks-scale.md."""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from rich.console import Console

from bench.queues.display import Display
from bench.scale import history, idle, overload, report, topics
from bench.scale.figures import Row
from bench.scale.plan import Plan, Stage
from tools.checkout import commit


@dataclass(frozen=True, slots=True)
class Scenario:
    run: Callable[[Stage], Iterator[Row]]
    note: str


SCENARIOS = {
    "idle": Scenario(idle.idle, idle.NOTE),
    "topics": Scenario(topics.topics, topics.NOTE),
    "history": Scenario(history.history, history.NOTE),
    "overload": Scenario(overload.overload, overload.NOTE),
}


def main() -> None:
    arguments = _parser().parse_args()
    plan = Plan(**{each.name: getattr(arguments, each.name) for each in fields(Plan)})
    stage = Stage(plan, Display(Console()))
    is_trial = plan != Plan() or bool(arguments.only)
    given = shlex.join(sys.argv[1:])
    circumstances = report.Circumstances(
        command=f"python -m bench.scale {given}" if given else "make bench-scale",
        commit=commit(),
        is_trial=is_trial,
        is_complete=False,
    )
    chapters: list[report.Chapter] = []
    names = [name for name in SCENARIOS if not arguments.only or name in arguments.only]
    for name in names:
        scenario = SCENARIOS[name]
        rows = list(report.told(stage.display, scenario.run(stage)))
        chapters.append(report.Chapter(scenario.note, rows))
        if arguments.write or not is_trial:
            # After each, because a full run takes long.
            report.write(chapters, replace(circumstances, is_complete=name == names[-1]))
            stage.display.say(f"written to {report.DOCUMENT}")


def _parser() -> argparse.ArgumentParser:
    full = Plan()
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--only", choices=sorted(SCENARIOS), action="append", help="run just this one")
    parser.add_argument("--connections", type=int, default=full.connections, help="that are idle")
    parser.add_argument("--topics", type=int, default=full.topics)
    parser.add_argument("--records", type=int, default=full.records, help="in the log")
    parser.add_argument("--rounds", type=int, default=full.rounds, help="of what takes turns")
    parser.add_argument("--seconds", type=float, default=full.seconds, help="of each measurement")
    parser.add_argument("--write", action="store_true", help="write the page after a trial too")
    return parser


if __name__ == "__main__":
    main()
