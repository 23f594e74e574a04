"""The command line: `python -m tools.conformance [kafka-python|librdkafka] …`."""

import argparse
import sys
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tools.conformance import kafka_path, kafka_python, librdkafka, librdkafka_build, report
from tools.conformance.expectations import judge
from tools.conformance.results import SuiteRun
from tools.conformance.workspace import SetupError, Workspace

SUITES = (kafka_python.NAME, librdkafka.NAME)
ROOT = Path(".conformance")
WIDTH = 160
"""Of what is printed into a file or a pipe."""


def main() -> int:
    arguments = _arguments()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # a log of a long run is read while it runs
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    workspace = Workspace(ROOT.absolute(), keep_data=arguments.keep)
    suites = [arguments.suite] if arguments.suite else SUITES
    try:
        with workspace.locked():
            good = [_judged(console, workspace, suite, arguments) for suite in suites]
    except SetupError as error:
        console.print(f"[red]Nothing was run:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has been stopped")
        return 130
    return 0 if all(good) else 1


def _judged(console: Console, workspace: Workspace, suite: str, arguments: argparse.Namespace) -> bool:
    try:
        run = _run(console, workspace, suite, arguments)
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
    parser.add_argument("suite", nargs="?", choices=SUITES, help="run just this one")
    parser.add_argument("--only", action="append", default=[], help="run just tests with this in their name")
    parser.add_argument("--without", action="append", default=[], help="librdkafka: leave such tests out")
    parser.add_argument("--quick", action="store_true", help="librdkafka: its quick mode, which omits a lot")
    parser.add_argument("--jobs", type=int, default=4, help="librdkafka: how many tests at a time")
    parser.add_argument("--broker", metavar="HOST:PORT", help="test this broker, do not start one")
    parser.add_argument("--keep", action="store_true", help="leave the broker's data in .conformance/data-…")
    return parser.parse_args()


def _run(console: Console, workspace: Workspace, suite: str, arguments: argparse.Namespace) -> SuiteRun:
    with report.progressing(console, suite) as progress:
        if suite == kafka_python.NAME:
            directory = kafka_python.prepare(workspace, progress.step)
            progress.step("running")
            return kafka_python.run(
                workspace,
                directory,
                only=arguments.only,
                address=arguments.broker,
                report=progress.result,
            )
        tests = librdkafka_build.prepare(workspace, progress.step)
        kafka = kafka_path.prepare(workspace, progress.step)
        progress.step("running")
        return librdkafka.run(
            workspace,
            tests,
            kafka,
            only=arguments.only,
            without=arguments.without,
            address=arguments.broker,
            quick=arguments.quick,
            jobs=arguments.jobs,
            report=progress.result,
        )


if __name__ == "__main__":
    sys.exit(main())
