"""Completions as bash takes them: quoted, so that a name is one word and no command.

bash puts completions into the command line as they are. A queue may be called `a b` or `$(reboot)`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO

VARIABLE = "_POSTHOUSE_COMPLETE"
_ASKED_BY_BASH = "complete_bash"
_SPECIAL = re.compile(r"[^\w@%+=:,./\-\u0080-\U0010ffff]")
_SPECIAL_IN_QUOTES = re.compile(r'["$`\\]')


def is_asked_by_bash(environment: Mapping[str, str]) -> bool:
    return environment.get(VARIABLE) == _ASKED_BY_BASH


@contextmanager
def quoted_output(environment: Mapping[str, str]) -> Iterator[None]:
    """Quote the completions that are printed meanwhile, one in each line. Typer prints them and exits."""
    found = StringIO()
    try:
        with redirect_stdout(found):
            yield
    finally:
        opened = _opening_quote(environment)
        for line in found.getvalue().splitlines():
            print(quoted(line, opened))


def quoted(name: str, opened: str = "") -> str:
    """The name in the command line. `opened` is the quote that the word begins with: bash closes it."""
    if opened == "'":
        return name.replace("'", r"'\''")
    special = _SPECIAL_IN_QUOTES if opened else _SPECIAL
    return special.sub(r"\\\g<0>", name)


def _opening_quote(environment: Mapping[str, str]) -> str:
    """Typer's script for bash gives the words of the command line, in lines, as they were typed."""
    words = environment.get("COMP_WORDS", "").split("\n")
    number = int(environment.get("COMP_CWORD") or 0)
    word = words[number] if number < len(words) else ""
    return word[:1] if word.startswith(("'", '"')) else ""
