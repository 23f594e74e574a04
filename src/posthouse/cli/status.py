"""`posthouse status`, `posthouse top` and `posthouse disk`: the broker at a glance."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.options import Admin, Json, open_admin
from posthouse.cli.output import print_json, print_table, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from posthouse.cli.snapshot import Snapshot
    from posthouse.client.admin_client import AdminClient

_MEASURED_SECONDS = 1.0

Most = Annotated[
    int, typer.Option("--max", "-n", min=1, max=1000, metavar="N", help="Most lines of each list.")
]
Interval = Annotated[
    float, typer.Option(min=0.2, max=3600, metavar="SECONDS", help="Time between two looks.")
]
Once = Annotated[bool, typer.Option("--once", metavar="", help="Show one screen and end.")]


def register(app: typer.Typer, *, panel: str) -> None:
    app.command(rich_help_panel=panel, epilog="`posthouse status`")(status)
    app.command(rich_help_panel=panel, epilog="`posthouse top`\n\n`posthouse top --once`")(top)
    app.command(rich_help_panel=panel, epilog="`posthouse disk`")(disk)


def status(context: typer.Context, max: Most = 5, json: Json = False, admin: Admin = None) -> None:
    """Show the broker on one screen: health, listeners, rates, lag, queues and disk.

    The exit code is 0 if the broker is ready and 1 if it is not. It takes a second, to measure rates.
    """
    with open_admin(context, admin) as client:
        snapshot, rates = _measured(client, max)
    if json:
        print_json(snapshot.as_json(rates))
    else:
        _print(snapshot, rates)
    if not snapshot.overview["ready"]:
        raise typer.Exit(1)


def top(
    context: typer.Context,
    interval: Interval = 2.0,
    max: Most = 10,
    once: Once = False,
    admin: Admin = None,
) -> None:
    """Watch the broker: the screen of 'status', renewed until q or Ctrl-C."""
    with open_admin(context, admin) as client:
        if once or not sys.stdout.isatty():
            _print(*_measured(client, max))
            return
        try:
            _watch(client, interval, max)
        except KeyboardInterrupt:
            return


def disk(context: typer.Context, max: Most = 20, json: Json = False, admin: Admin = None) -> None:
    """Show what fills the disk: the topics and queues that take most of it."""
    from posthouse.cli.screens import disk_rows, disk_space

    with open_admin(context, admin) as client:
        found = client.get("/v1/disk", limit=max)
    if json:
        print_json(found)
        return
    print(disk_space(found) + "\n")
    columns = ("what", "kind", "bytes", "share")
    print_table(columns, disk_rows(found), right=("bytes", "share"))


def _measured(client: AdminClient, most: int) -> tuple[Snapshot, dict[str, float]]:
    from posthouse.cli.snapshot import take_snapshot, totals_of

    before = totals_of(client.get("/v1/overview"))
    time.sleep(_MEASURED_SECONDS)
    snapshot = take_snapshot(client, most=most)
    return snapshot, snapshot.totals.rates(before)


def _print(snapshot: Snapshot, rates: dict[str, float]) -> None:
    from posthouse.cli.screens import headline, sections

    print(headline(snapshot))
    for section in sections(snapshot, rates):
        print()
        print_table(section.columns, section.rows, right=section.right)


def _watch(client: AdminClient, interval: float, most: int) -> None:
    from rich.live import Live

    from posthouse.cli.snapshot import take_snapshot

    with _keys() as pressed_q, Live(screen=True, auto_refresh=False) as live:
        before: Snapshot | None = None
        while True:
            snapshot = take_snapshot(client, most=most)
            rates = {} if before is None else snapshot.totals.rates(before.totals)
            live.update(_screen(snapshot, rates), refresh=True)
            if pressed_q(interval if before is not None else min(interval, _MEASURED_SECONDS)):
                return
            before = snapshot


def _screen(snapshot: Snapshot, rates: dict[str, float]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from posthouse.cli.screens import headline, sections

    # At the top: a terminal that is too small cuts off what is below.
    title = Text.assemble((headline(snapshot), "bold"), ("   q or Ctrl-C ends", "dim"))
    parts: list[RenderableType] = [title, Text()]
    for section in sections(snapshot, rates):
        parts += [table(section.columns, section.rows, right=section.right), Text()]
    return Group(*parts)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A function that waits for a number of seconds, and returns whether q was pressed."""
    import select
    import termios
    import tty

    if not sys.stdin.isatty():
        yield _sleep
        return
    terminal = sys.stdin.fileno()
    usual = termios.tcgetattr(terminal)

    def wait(seconds: float) -> bool:
        ready, _, _ = select.select([terminal], [], [], seconds)
        if not ready:
            return False
        typed = os.read(terminal, 1024)  # not of sys.stdin, which reads ahead
        return not typed or b"q" in typed.lower()

    try:
        tty.setcbreak(terminal)
        yield wait
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, usual)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
