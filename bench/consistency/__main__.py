"""`make bench-consistency`: relays of an outbox side by side; writes docs/benchmarks-consistency.md.

A trial (`--quick`, or anything but the full run) writes no page unless told to.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace

from bench.consistency import report
from bench.consistency.contenders import CONTENDERS, Contender
from bench.consistency.figures import FIGURES, Results
from bench.consistency.measuring import Failed, Plan, measured
from bench.consistency.stage import Stage, opened
from tools.checkout import commit

_QUICK = Plan(rows=2_000, seconds=3.0, rounds=1)


def main(given: Sequence[str] = tuple(sys.argv[1:])) -> int:
    arguments = _parser().parse_args(given)
    plan = _QUICK if arguments.quick else Plan()
    chosen = {name: getattr(arguments, name) for name in ("rows", "seconds", "rounds")}
    plan = replace(plan, **{name: value for name, value in chosen.items() if value})
    names = arguments.only or [each.name for each in CONTENDERS]
    contenders = [each for each in CONTENDERS if each.name in names]
    command = f"python -m bench.consistency {shlex.join(given)}" if given else "make bench-consistency"
    circumstances = report.Circumstances(command=command, commit=commit(), plan=plan)
    try:
        with opened() as stage:
            results = contest(stage, contenders, plan)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    is_trial = plan != Plan() or len(contenders) < len(CONTENDERS)
    if arguments.write or not is_trial:
        report.write(results, circumstances)
        print(f"written to {report.DOCUMENT}")
    return 1 if any(name not in results.rounds for name in names) else 0


def contest(stage: Stage, contenders: Sequence[Contender], plan: Plan) -> Results:
    """Each round begins with another one. A relay that fails has no more turns."""
    results = Results()
    for contender in contenders:
        if (obstacle := contender.obstacle) is not None:
            results.missing[contender.name] = obstacle
            print(f"{contender.name}: not measured: {obstacle}", flush=True)
    for number in range(plan.rounds):
        first = number % len(contenders)
        for place, each in enumerate((*contenders[first:], *contenders[:first])):
            if each.name in results.missing:
                continue
            try:
                found = measured(stage, each, plan, f"round-{number}-{place}")
            except Failed as error:
                results.missing[each.name] = f"round {number + 1}: {error}"
                print(f"{each.name}: {results.missing[each.name]}", flush=True)
                continue
            results.rounds.setdefault(each.name, []).append(found)
            shown = ", ".join(f"{figure.title} {found[figure.name]:,.1f} {figure.unit}" for figure in FIGURES)
            print(f"round {number + 1} of {plan.rounds}, {each.name}: {shown}", flush=True)
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.consistency", description=__doc__)
    parser.add_argument("--only", choices=[each.name for each in CONTENDERS], action="append")
    parser.add_argument("--quick", action="store_true", help="tiny volumes, to test the benchmark itself")
    parser.add_argument("--rows", type=int, help="that wait")
    parser.add_argument("--seconds", type=float, help="of transactions with one message each")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--write", action="store_true", help="write the page after a trial, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
