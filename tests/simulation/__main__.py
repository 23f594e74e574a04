"""Runs seeds, and one seed again:

python -m tests.simulation --seeds 2000 --seed 1 --jobs 2
python -m tests.simulation --replay 17 --trace

With --cluster a seed is a life of three brokers on one database.
"""

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.simulation.cluster import cluster_scenario
from tests.simulation.cluster.cluster_controls import CLUSTER_CONTROLS
from tests.simulation.controls import CONTROLS
from tests.simulation.scenario import Result, run

HASH_SEED = "0"
"""The order in which a set of bytes is walked depends on it, so it belongs to the seed."""


@dataclass(frozen=True, slots=True)
class Mode:
    flag: str
    run: Callable[..., Result]
    controls: Mapping[str, Any]


ALONE = Mode("", run, CONTROLS)
CLUSTER = Mode(" --cluster", cluster_scenario.run, CLUSTER_CONTROLS)


def main() -> int:
    options = _options()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": HASH_SEED},
        )
    if options.replay is not None:
        return _replay(options)
    return _run_all(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--cluster", action="store_true", help="three brokers on one database")
    parser.add_argument("--seeds", type=int, default=100, help="how many (100)")
    parser.add_argument("--seed", type=int, default=1, help="the first one (1)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="how many processes (one for each core)"
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this one alone")
    parser.add_argument("--trace", action="store_true", help="with --replay: print all that happened")
    parser.add_argument("--save", type=Path, metavar="FILE", help="with --replay: store the history")
    parser.add_argument(
        "--control",
        choices=sorted({*CONTROLS, *CLUSTER_CONTROLS}),
        default="none",
        help="break the broker, its disk or its database in this way, which must show",
    )
    options = parser.parse_args()
    options.mode = CLUSTER if options.cluster else ALONE
    if options.control not in options.mode.controls:
        parser.error(f"{options.control} is a control of the other mode")
    return options


def _replay(options: argparse.Namespace) -> int:
    mode: Mode = options.mode
    control = mode.controls[options.control]
    result = mode.run(options.replay, keep_trace=options.trace, control=control)
    for line in result.trace or ():
        print(line)
    if options.save is not None:
        result.history.save(options.save)
    print(result)
    print(f"{result.steps} steps, {result.lives} lives, {result.seconds:.1f} s, digest {result.digest}")
    return 0 if result.is_good else 1


class Summary:
    def __init__(self) -> None:
        self.bad: list[int] = []
        self.seeds = 0
        self.steps = 0
        self.operations: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.steps += result.steps
        self.operations.update(result.report.counts)
        self.faults.update(result.report.faults)
        if not result.is_good:
            self.bad.append(result.seed)


def _run_all(options: argparse.Namespace) -> int:
    seeds = range(options.seed, options.seed + options.seeds)
    summary = Summary()
    began = time.monotonic()
    try:
        for result in _results(options.mode, seeds, options.jobs, options.control):
            summary.add(result)
            if not result.is_good:
                print(f"\r{result}")
                control = "" if options.control == "none" else f" --control {options.control}"
                replay = f"--replay {result.seed} --trace{control}"
                print(f"  python -m tests.simulation{options.mode.flag} {replay}", flush=True)
            if summary.seeds % 20 == 0 or summary.seeds == len(seeds):
                _show_progress(summary, len(seeds), time.monotonic() - began)
    except KeyboardInterrupt:
        print("\nstopped")
    _show(summary, time.monotonic() - began)
    return 1 if summary.bad else 0


def _results(mode: Mode, seeds: Iterable[int], jobs: int, control: str) -> Iterator[Result]:
    gc.freeze()
    if jobs == 1:
        for seed in seeds:
            yield _one((mode.flag, seed, control))
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_one, ((mode.flag, seed, control) for seed in seeds), chunksize=4)


def _one(asked: tuple[str, int, str]) -> Result:
    flag, seed, control = asked
    mode = CLUSTER if flag else ALONE
    result = mode.run(seed, control=mode.controls[control])
    result.history.clear()  # it is judged, and need not be carried to another process
    return result


def _show_progress(summary: Summary, total: int, seconds: float) -> None:
    rate = summary.seeds / seconds
    line = f"{summary.seeds} of {total} seeds, {rate:.1f} a second, {len(summary.bad)} bad"
    print(f"\r{line}" if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n", flush=True)


def _show(summary: Summary, seconds: float) -> None:
    operations = sum(summary.operations.values()) - summary.operations["Fault"]
    print(
        f"\n{summary.seeds} seeds in {seconds:.0f} s ({summary.seeds / max(seconds, 0.001):.1f} a second): "
        f"{operations} operations, {sum(summary.faults.values())} faults, {summary.steps} steps, "
        f"{len(summary.bad)} seeds with anomalies"
    )
    print("operations: " + ", ".join(f"{count} {name}" for name, count in summary.operations.most_common()))
    print("faults: " + ", ".join(f"{count} {name}" for name, count in summary.faults.most_common()))
    if summary.bad:
        print(f"bad seeds: {summary.bad}")


if __name__ == "__main__":
    sys.exit(main())
