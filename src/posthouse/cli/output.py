"""Tables for people, JSON for machines, sentences on stderr.

Clients choose the names and other texts in all of them. What is invisible is escaped, so that no client can
send escape sequences to the operator's terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from posthouse.model.excerpts import printable

if TYPE_CHECKING:
    from rich.table import Table

_WIDE = 10_000
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"
_NOT_ASCII = re.compile(r"[^ -~]")


def print_json(value: Any) -> None:
    print(_NOT_ASCII.sub(_visible_json, json.dumps(value, ensure_ascii=False)))


def _visible_json(found: re.Match[str]) -> str:
    """The character, or its escape in a JSON string: outside of strings everything is visible ASCII."""
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()
) -> None:
    """`right` names the right-aligned columns."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    # In a pipe columns need no alignment, but `grep` and `awk` need whole lines.
    console = Console() if terminal else Console(width=_WIDE)
    console.print(table(columns, rows, right=right, has_rule=terminal))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    has_rule: bool = True,
) -> Table:
    """For rich to print."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD if has_rule else None, show_edge=False, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(printable(str(cell))) for cell in row))
    return made


def say(sentence: str) -> None:
    """Print a sentence on stderr, so that it does not mix with piped output."""
    print(printable(sentence), file=sys.stderr)


def say_at_once(sentence: str) -> None:
    """Print from a signal handler, which may interrupt another print."""
    os.write(sys.stderr.fileno(), f"{sentence}\n".encode())


def print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an error on stderr. The texts of errors quote clients, too."""
    import traceback

    lines = "".join(traceback.format_exception(kind, error, trace)).removesuffix("\n").split("\n")
    print(*map(printable, lines), sep="\n", file=sys.stderr)


def complain(sentence: str) -> None:
    text = f"posthouse: {printable(sentence)}"
    print(f"{_RED}{text}{_PLAIN}" if sys.stderr.isatty() else text, file=sys.stderr)


def give_up_stdout() -> None:
    """The reader of our output has closed the pipe: drop buffered output, so that the exit does not fail
    again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def shown(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")


def one_line(text: str, longest: int) -> str:
    """For a cell of a table."""
    visible = printable(text)
    return visible if len(visible) <= longest else visible[: longest - 1] + "…"


def or_dash(value: object) -> object:
    return "-" if value is None or value == "" else value
