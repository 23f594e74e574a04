"""`make bench`: measure everything, print it, and write docs/benchmarks.md."""

import argparse

from rich.console import Console
from rich.table import Table

from bench import report
from bench.scenarios import SCENARIOS, Row
from bench.webhooks import webhooks


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "figures", nargs="?", choices=["webhooks"], help="figures that are not of the page: print them alone"
    )
    parser.add_argument("--only", choices=sorted(SCENARIOS), action="append", help="run just this one")
    parser.add_argument("--scale", type=float, default=1.0, help="how much data, 1.0 is a full run")
    arguments = parser.parse_args()
    console = Console()
    rows: list[Row] = []
    if arguments.figures == "webhooks":
        with console.status("measuring: webhooks …"):
            _print(console, list(webhooks(arguments.scale)))
        return
    for name, scenario in SCENARIOS.items():
        if arguments.only and name not in arguments.only:
            continue
        with console.status(f"measuring: {name} …"):
            for row in scenario(arguments.scale):
                rows.append(row)
                console.print(f"  {row.name}: {report.figure(row)}  {report.ratio(row)}", highlight=False)
    _print(console, rows)
    if not arguments.only and arguments.scale == 1.0:
        report.write(rows, "make bench")
        console.print(f"written to {report.DOCUMENT} and {report.PICTURE}")


def _print(console: Console, rows: list[Row]) -> None:
    table = Table("", "figure", "ratio", "aim")
    section = ""
    for row in rows:
        if row.section != section:
            table.add_section()
            table.add_row(f"[bold]{row.section}[/bold]")
            section = row.section
        table.add_row(row.name, report.figure(row), report.ratio(row), row.aim)
    console.print(table)


if __name__ == "__main__":
    main()
