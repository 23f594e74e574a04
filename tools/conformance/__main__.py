"""The command line: `python -m tools.conformance [SUITE or PROTOCOL] …`."""

import argparse
import sys
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tools.conformance import report, suites
from tools.conformance.expectations import judge
from tools.conformance.suites import PROTOCOLS, SUITES, Options
from tools.conformance.workspace import SetupError, Workspace

ROOT = Path(".conformance")
WIDTH = 160
"""Of what is printed into a file or a pipe."""


def main() -> int:
    arguments = _arguments()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a log of a long run is read while it runs
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    workspace = Workspace(ROOT.absolute(), keep_data=arguments.keep)
    options = Options(
        only=arguments.only,
        without=arguments.without,
        quick=arguments.quick,
        jobs=arguments.jobs,
        address=arguments.broker,
    )
    try:
        with workspace.locked():
            good = [_judged(console, workspace, suite, options) for suite in suites.named(arguments.suite)]
    except SetupError as error:
        console.print(f"[red]Nothing was run:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has been stopped")
        return 130
    return 0 if all(good) else 1


def _judged(console: Console, workspace: Workspace, suite: str, options: Options) -> bool:
    try:
        with report.progressing(console, suite) as progress:
            run = suites.run(workspace, suite, options, progress)
    except SetupError as error:
        console.print(f"[red]{suite} could not be run:[/] {escape(str(error))}", soft_wrap=True)
        return False
    verdict = judge(run)
    report.show(console, run, verdict)
    file = report.write(workspace.root, run, verdict)
    console.print(f"details are in {file.relative_to(Path.cwd())} and {ROOT / 'logs'}", highlight=False)
    return verdict.good and bool(run.results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__)
    choices = (*PROTOCOLS, *SUITES)
    parser.add_argument("suite", nargs="?", choices=choices, help="run just this one, or those of a protocol")
    parser.add_argument("--only", action="append", default=[], help="run just tests with this in their name")
    parser.add_argument("--without", action="append", default=[], help="librdkafka: leave such tests out")
    parser.add_argument("--quick", action="store_true", help="librdkafka: its quick mode, which omits a lot")
    parser.add_argument("--jobs", type=int, default=4, help="librdkafka: how many tests at a time")
    parser.add_argument("--broker", metavar="HOST:PORT", help="test this broker, do not start one")
    parser.add_argument("--keep", action="store_true", help="leave the broker's data in .conformance/data-…")
    arguments = parser.parse_args()
    if arguments.broker and not arguments.suite:
        parser.error("--broker is an address of one protocol; say which suite, or kafka, amqp or rocketmq")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
