"""Judge saved histories: `python -m tests.checker FILE...`, or measure: `python -m tests.checker --speed`."""

import argparse
import sys
from pathlib import Path
from time import perf_counter

from tests.checker.history import History
from tests.checker.judge import check
from tests.checker.model.generate import generate


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.checker", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="a saved history")
    parser.add_argument("--lossy", action="store_true", help="a crash may lose what was acknowledged")
    parser.add_argument(
        "--speed", action="store_true", help="check a made-up history and say how long it took"
    )
    parser.add_argument("--operations", type=int, default=1_000_000, help="size of the made-up history")
    options = parser.parse_args(arguments)
    if not options.files and not options.speed:
        parser.error("which histories?")
    if options.speed:
        _measure(options.operations)
    return max([_judge(file, not options.lossy) for file in options.files], default=0)


def _judge(file: Path, durable: bool) -> int:
    report = check(History.load(file), durable=durable)
    print(f"{file}: {report}")
    return 0 if report.clean else 1


def _measure(operations: int) -> None:
    history = generate(0, operations, crashes=0.0001)
    began = perf_counter()
    report = check(history)
    took = perf_counter() - began
    print(report)
    print(f"{len(history):,} operations in {took:.1f} s: {len(history) / took:,.0f} a second")


if __name__ == "__main__":
    sys.exit(main())
