"""Passwords from a terminal, without echo, or from standard input or a file."""

import getpass
import sys
from pathlib import Path

from posthouse.client.errors import BadArgument
from posthouse.client.security import password_in

STDIN = Path("-")


def ask_password(prompt: str) -> str:
    try:
        return getpass.getpass(prompt)
    except EOFError:
        raise BadArgument("no password was given") from None


def given_secret(file: Path) -> str:
    """From the first line of the file, or of standard input."""
    if file != STDIN:
        return password_in(file)
    secret = sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise BadArgument("there is no secret in the first line of standard input; write one there")
    return secret


def new_password(name: str, file: Path | None) -> str:
    """From the file, or typed twice; from the first line of standard input if that is not a terminal."""
    if file is not None and file != STDIN:
        return password_in(file)
    if file == STDIN or not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
        if not password:
            raise BadArgument(
                "there is no password in the first line of standard input; write one there, or give "
                "--password-file FILE"
            )
        return password
    password = ask_password(f"New password of {name}: ")
    if not password:
        raise BadArgument("a password cannot be empty; nothing was changed")
    if ask_password("The same again: ") != password:
        raise BadArgument("the two passwords differ; nothing was changed")
    return password
