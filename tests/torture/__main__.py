"""`python -m tests.torture`: faults by the minute or by the round, with a report. See docs/reliability.md."""

import argparse
import asyncio
import datetime
import logging
import math
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

from tests.s3 import why_no_s3
from tests.torture.campaign import Kind, MakeWorkload, Verdict, run_campaign
from tests.torture.catalogue import CHANCES, CONTROL_SEED, ENTRIES, WORKLOADS, Entry, of_workload
from tests.torture.cluster.catalogue import ENTRIES as CLUSTER_ENTRIES
from tests.torture.mounts import why_not
from tests.torture.network.catalogue import ENTRIES as NETWORK_ENTRIES
from tests.torture.network.namespaces import why_not as why_no_namespaces
from tests.torture.progress import Progress, make_progress
from tests.torture.report import Run, around, write
from tools.checkout import commit

FAILURES = Path(".torture")
BY_NAME = {entry.name: entry for entry in (*ENTRIES, *CLUSTER_ENTRIES, *NETWORK_ENTRIES)}
_OF_ALL = "all"


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    options = _parser().parse_args(arguments)
    # A client that goes on writing for an instant after its broker has died is no news.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    usual = (*CLUSTER_ENTRIES, *NETWORK_ENTRIES) if options.cluster else ENTRIES
    if _OF_ALL in options.rounds:
        share = math.ceil(options.rounds[_OF_ALL] / len(usual))
        options.rounds = {entry.name: share for entry in usual}
    kinds = options.kinds or ",".join(options.rounds) or ",".join(entry.name for entry in usual)
    entries = _with_workload(chosen_entries(kinds), options.workload)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    run = Run(_command(options), today, commit(), {})
    deadline = math.inf if options.rounds else time.monotonic() + options.minutes * 60
    try:
        with make_progress(run, deadline) as progress:
            for entry, rounds, seed in _schedule(entries, options, progress):
                if entry.row not in run.figures:
                    _try_control(entry, run, progress)
                _torture(entry, rounds, seed, run, progress)
    finally:
        if options.report and run.figures:
            write(run, options.report)
    return 0 if all(each.is_good for each in run.figures.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, for all kinds together (10)")
    parser.add_argument(
        "--cluster", action="store_true", help="several brokers on PostgreSQL, if no kinds are named"
    )
    parser.add_argument("--kinds", default="", help=f"which faults, with commas: {', '.join(BY_NAME)}")
    parser.add_argument("--workload", choices=WORKLOADS, help="only this one, in rows of its own")
    parser.add_argument(
        "--rounds",
        type=_rounds,
        default={},
        metavar="KIND:N,...",
        help="so many rounds of these kinds, or a number of rounds of all, however long they take",
    )
    parser.add_argument("--seed", type=int, default=1, help="of workloads and faults (1)")
    parser.add_argument("--report", type=_page, help="the page whose table is brought up to date")
    return parser


def _rounds(text: str) -> dict[str, int]:
    if text.isdigit():
        return {_OF_ALL: int(text)}
    wanted = {}
    for part in filter(None, text.split(",")):
        kind, colon, number = part.partition(":")
        if not colon or not number.isdigit() or kind not in BY_NAME:
            raise argparse.ArgumentTypeError(f"{part!r} is not KIND:N with KIND one of {', '.join(BY_NAME)}")
        wanted[kind] = int(number)
    return wanted


def _page(text: str) -> Path:
    """Looked at before hours are spent on figures for it."""
    try:
        around(Path(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def chosen_entries(kinds: str) -> list[Entry]:
    unknown = [kind for kind in kinds.split(",") if kind not in BY_NAME]
    if unknown:
        sys.exit(f"there is no fault {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    chosen = [entry for entry in BY_NAME.values() if entry.name in kinds.split(",")]
    chosen = _possible(
        chosen, lambda entry: entry.needs_mount, why_not, "a file system cannot be mounted here"
    )
    chosen = _possible(
        chosen,
        lambda entry: entry.needs_namespaces,
        why_no_namespaces,
        "network namespaces cannot be made here",
    )
    chosen = _possible(chosen, lambda entry: entry.needs_store, why_no_s3, "there is no S3 server")
    others = [entry.name for entry in chosen if entry.needs_namespaces]
    if others and (reason := why_no_s3()) is not None:
        print(f"no fault of the object store in {', '.join(others)}: objects are in a directory ({reason})")
    return chosen


def _possible(
    entries: list[Entry], needs: Callable[[Entry], bool], obstacle: Callable[[], str | None], problem: str
) -> list[Entry]:
    """Those that can be run here. Prints which cannot, and why."""
    needy = [entry for entry in entries if needs(entry)]
    if not needy or (reason := obstacle()) is None:
        return entries
    print(f"skipping {', '.join(entry.name for entry in needy)}: {problem} ({reason})")
    return [entry for entry in entries if entry not in needy]


def _command(options: argparse.Namespace) -> str:
    """What to type to have the same again."""
    parts = ["make torture-cluster" if options.cluster else "make torture"]
    if options.rounds:
        parts.append("ROUNDS=" + ",".join(f"{kind}:{number}" for kind, number in options.rounds.items()))
    else:
        parts.append(f"MINUTES={options.minutes:g}")
        if options.kinds:
            parts.append(f"KINDS={shlex.quote(options.kinds)}")
    if options.workload:
        parts.append(f"WORKLOAD={options.workload}")
    return " ".join([*parts, f"SEED={options.seed}"])


def _with_workload(entries: list[Entry], workload: str | None) -> list[Entry]:
    if workload is None:
        return entries
    return [chosen for entry in entries if (chosen := of_workload(entry, workload)) is not None]


def _schedule(
    entries: list[Entry], options: argparse.Namespace, progress: Progress
) -> Iterator[tuple[Entry, int, int]]:
    """Campaigns in turn, each with a seed of its own, until the time is up or the rounds are done."""
    left = {entry.name: options.rounds.get(entry.name, 0) for entry in entries}
    for turn in count():
        for entry in entries:
            seed = options.seed * 1_000_000 + turn
            if not options.rounds:
                if not progress.has_time:
                    return
                yield entry, entry.rounds, seed
            elif left[entry.name] > 0:
                rounds = min(entry.rounds, left[entry.name])
                left[entry.name] -= rounds
                yield entry, rounds, seed
        if not entries or (options.rounds and not any(left.values())):
            return


def _campaign(
    kind: Kind,
    workload: MakeWorkload,
    rounds: int,
    seed: int,
    *,
    name: str,
    is_good: Callable[[Verdict], bool],
    on_round: Callable[[], bool] = lambda: True,
) -> Verdict:
    """A campaign that is not good is kept under `name`."""
    place = Path(tempfile.mkdtemp(prefix="posthouse-torture-"))
    campaign = run_campaign(kind, workload, place, rounds=rounds, seed=seed, on_round=on_round)
    try:
        verdict = asyncio.run(campaign)
        if not is_good(verdict):
            _keep(verdict, kind.plain_recipe(place).log, name)
        return verdict
    finally:
        shutil.rmtree(place)


def _keep(verdict: Verdict, log: Path, name: str) -> None:
    FAILURES.mkdir(exist_ok=True)
    verdict.history.save(FAILURES / f"{name}.jsonl")
    (FAILURES / f"{name}.txt").write_text("\n".join(verdict.anomalies), encoding="utf-8")
    if log.exists():
        shutil.copy(log, FAILURES / f"{name}.log")


def _where(name: str) -> str:
    return f"see {FAILURES / name}.jsonl, .txt and .log"


def _try_control(entry: Entry, run: Run, progress: Progress) -> None:
    """Break a promise on purpose; who finds nothing then finds nothing ever."""
    control, found = entry.control, ""
    for seed in range(CONTROL_SEED, CONTROL_SEED + CHANCES):
        name = f"{entry.name}-control-{seed}"
        verdict = _campaign(
            *(control.make(), control.workload, control.rounds, seed),
            name=name,
            is_good=lambda verdict: bool(control.found_in(verdict.anomalies)),
        )
        found = control.found_in(verdict.anomalies)
        if found:
            break
        progress.say(f"{name}: found nothing in {verdict.rounds} rounds, {_where(name)}")
    run.of(entry.row).control = found
    progress.say(f"{entry.name}: control {f'caught ({found})' if found else 'MISSED'}")


def _torture(entry: Entry, rounds: int, seed: int, run: Run, progress: Progress) -> None:
    workload = entry.workloads[seed % len(entry.workloads)]
    name = f"{entry.name}-{seed}"
    verdict = _campaign(
        *(entry.make(), workload, rounds, seed),
        name=name,
        is_good=lambda verdict: not verdict.anomalies,
        on_round=lambda: progress.round(entry.row),
    )
    figures = run.of(entry.row)
    figures.store = entry.make().store
    figures.campaigns += 1
    figures.rounds += verdict.rounds
    figures.operations += verdict.operations
    figures.faults += verdict.faults.total()
    figures.anomalies += len(verdict.anomalies)
    figures.seconds += verdict.seconds
    progress.campaign(entry.row)
    if verdict.anomalies:
        progress.say(f"{name}: {len(verdict.anomalies)} anomalies, {_where(name)}")
        for anomaly in verdict.anomalies[:5]:
            progress.say(f"  {anomaly}")


if __name__ == "__main__":
    # Whoever ends it early gets a report of what was done, and leaves no mount behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
