"""`make bench-rocketmq`: measure beside the real RocketMQ, and write docs/benchmarks-rocketmq.md.

Everything runs in a network namespace of its own, so it needs to be root, or user namespaces. Jars are
fetched before that. A trial (`--quick`, or anything but the full run) writes no page unless told to.
"""

import argparse
import os
import shlex
import sys
from dataclasses import replace
from functools import partial

from bench.rocketmq import report
from bench.rocketmq.contest import Contest
from bench.rocketmq.loads import PROGRAM, Loads
from bench.rocketmq.peers import PEERS, in_namespace
from bench.rocketmq.plan import QUICK, Plan
from bench.rocketmq.scenarios import SCENARIOS
from tests.java import jars
from tools.checkout import commit

_INSIDE = "--inside"
_PLANNED = ("rounds", "seconds", "consumed", "backlog", "delayed")


def main() -> int:
    given = sys.argv[1:]
    arguments = _parser().parse_args()
    if not arguments.inside:
        try:
            jars.compiled(PROGRAM, jars.fetched("rocketmq-server", jars.ROCKETMQ_SERVER))
        except jars.Unavailable as error:
            print(error, file=sys.stderr)
            return 1
        _enter_namespace([*given, _INSIDE])
    plan = QUICK if arguments.quick else Plan()
    given_plan = {name: getattr(arguments, name) for name in _PLANNED}
    plan = replace(plan, **{name: value for name, value in given_plan.items() if value})
    directory = jars.fetched("rocketmq-server", jars.ROCKETMQ_SERVER)
    peers = [peer for peer in PEERS if not arguments.peer or peer.name.lower() in arguments.peer]
    contest = Contest(plan, peers, directory, Loads(jars.compiled(PROGRAM, directory)))
    names = [name for name in SCENARIOS if not arguments.only or name in arguments.only]
    is_trial = plan != Plan() or len(peers) < len(PEERS) or len(names) < len(SCENARIOS)
    words = shlex.join(each for each in given if each != _INSIDE)
    command = f"python -m bench.rocketmq {words}" if words else "make bench-rocketmq"
    commit_measured = commit()  # before the page itself is a change
    for name in names:
        contest.run(name, partial(print, flush=True))
        if arguments.write or not is_trial:  # after each, because a full run takes long
            circumstances = report.Circumstances(
                command=command,
                commit=commit_measured,
                plan=plan,
                is_complete=name == names[-1],
                failures=contest.failures,
            )
            report.write(contest.rows, circumstances)
    print("\n" + "\n".join(report.line(row) for row in contest.rows))
    return 1 if contest.failures else 0


def _enter_namespace(arguments: list[str]) -> None:
    """Does not return."""
    command = in_namespace([sys.executable, "-m", "bench.rocketmq", *arguments])
    os.execvp(command[0], command)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.rocketmq", description=__doc__)
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="run just this one")
    parser.add_argument("--peer", choices=[each.name.lower() for each in PEERS], action="append")
    parser.add_argument("--quick", action="store_true", help="tiny volumes, to test the benchmark itself")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of every measurement that is not a count")
    parser.add_argument("--consumed", type=int, help="messages that wait for a push consumer")
    parser.add_argument("--backlog", type=int, help="messages")
    parser.add_argument("--delayed", type=int, help="messages")
    parser.add_argument("--write", action="store_true", help="write the page after a trial, too")
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
