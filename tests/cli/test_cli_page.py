"""docs/cli.md: every command is in it, and what it shows can be typed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from posthouse.cli.login_options import repeat_login_options
from posthouse.cli.program import app
from tests.cli.programs import inside

PAGE = Path(__file__).parent.parent.parent / "docs" / "cli.md"
LINES = re.findall(r"^\$ posthouse (.*?)(?:\s+#.*)?$", PAGE.read_text(), re.MULTILINE)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_every_command_has_an_example_in_the_page() -> None:
    shown = [tuple(shlex.split(line)) for line in LINES]
    missing = [path for path in COMMANDS if not any(words[: len(path)] == path for words in shown)]
    assert not missing


@pytest.mark.parametrize("line", LINES)
def test_the_page_shows_what_can_be_typed(line: str) -> None:
    """Options are checked before the help is shown."""
    done = inside(*shlex.split(line), "--help")
    assert (done.returncode, done.stderr) == (0, ""), done


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert command.help and f"posthouse {' '.join(path)}" in command.epilog
    for parameter in command.params:
        assert getattr(parameter, "help", None) or parameter.name in ("help", "hints"), parameter.name


def test_every_option_of_a_login_is_in_the_page() -> None:
    text = PAGE.read_text()
    program = typer.main.get_command(app)
    for option in program.params:
        if option.name not in ("install_completion", "show_completion", "help", "version"):
            assert f"`{option.opts[0]}" in text and f"`{option.envvar}`" in text, option.name


def test_commands_that_reach_a_broker_take_a_login() -> None:
    program = typer.main.get_command(app)
    repeat_login_options(program)
    with_login = {
        path
        for path, command in commands(program)
        if {"ca", "profile"} <= {parameter.name for parameter in command.params}
    }
    assert ("queue", "list") in with_login and ("topic", "list") in with_login
    assert ("outbox", "relay") in with_login  # the others of the group reach a database only
    local = {"serve", "log", "storage", "profile", "outbox"}
    assert {path[0] for path in COMMANDS if path not in with_login} <= local | {"pipeline", "archive"}
