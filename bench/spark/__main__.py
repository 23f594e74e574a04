"""`make bench-spark`: measure the Spark side, print it, and write docs/benchmarks-spark.md."""

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator

import pyspark
from rich.console import Console

from bench.spark import report
from bench.spark.figures import Entry, Missing
from bench.spark.profile import profile
from bench.spark.reading import reading
from bench.spark.stage import SCALES, Stage, staged
from bench.spark.triggering import triggering
from bench.spark.writing import writing

PARTS: dict[str, Callable[[Stage], Iterator[Entry]]] = {
    "reading": reading,
    "writing": writing,
    "triggering": triggering,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--scale", choices=sorted(SCALES), default="full", help="how much data")
    parser.add_argument("--only", choices=sorted(PARTS), action="append", help="run just this part")
    parser.add_argument(
        "--connector",
        default=pyspark.__version__,
        metavar="VERSION",
        help="of Spark's Kafka connector, where there is none of this Spark's own release",
    )
    parser.add_argument("--write", action="store_true", help="write the page after a quick run too")
    parser.add_argument("--profile", action="store_true", help="only: where our source spends its time")
    arguments = parser.parse_args()
    console = Console()
    scale = SCALES[arguments.scale]
    with staged(scale, arguments.connector) as stage:
        if arguments.profile:
            profile(stage, console)
            return
        entries = list(_measured(stage, arguments.only or list(PARTS), console))
    if arguments.write or (scale.name == "full" and not arguments.only):
        given = shlex.join(sys.argv[1:])
        circumstances = report.Circumstances(
            command=f"python -m bench.spark {given}" if given else "make bench-spark",
            rounds=scale.rounds,
            is_trial=scale.name != "full",
            connector=arguments.connector,
        )
        report.write(entries, circumstances)
        console.print(f"written to {report.DOCUMENT} and {report.PICTURE}")


def _measured(stage: Stage, names: list[str], console: Console) -> Iterator[Entry]:
    section = ""
    for name, part in PARTS.items():
        if name not in names:
            continue
        for entry in part(stage):
            if entry.section != section:
                section = entry.section
                console.print(f"\n[bold]{section}[/bold]", highlight=False)
            console.print(f"  {_told(entry)}", highlight=False, markup=False, soft_wrap=True)
            yield entry


def _told(entry: Entry) -> str:
    if isinstance(entry, Missing):
        return f"{entry.name}: not measured: {entry.reason}"
    rate = "" if entry.megabytes is None else f"{entry.megabytes:,.0f} MB/s"
    told = [f"{entry.name}: {report.figure(entry)}", rate, report.ratios(entry), report.aims(entry)]
    return "  ".join(filter(None, told))


if __name__ == "__main__":
    main()
