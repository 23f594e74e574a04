"""The short way around Typer must not mean anything else than Typer would."""

import subprocess
import sys
from typing import Any

import pytest

from posthouse.cli import serve_command
from posthouse.cli.invocation import Invocation
from posthouse.cli.program import execute
from posthouse.cli.serve_options import plain_values
from tests.cli.programs import environment


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--data", "somewhere"],
        ["--data=some=where", "--memory", "--hints"],
        ["--kafka", "127.0.0.1:0", "--allow-open-network", "--auto-create-topics", "false"],
        ["--default-partitions", "3", "--default-partitions", "5", "--config", "file.toml"],
        ["--log-format=json", "--shutdown-seconds", "0.5", "--default-durability", "os"],
    ],
    ids=" ".join,
)
def test_the_short_way_and_typer_agree(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(serve_command, "start", lambda **values: seen.update(values))
    assert execute(["serve", *arguments], Invocation()) == 0
    assert plain_values(arguments, {}) == {name: value for name, value in seen.items() if value is not None}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-h"],
        ["--no-such"],
        ["data"],
        ["--data"],
        ["--data", "--memory"],
        ["--memory=true"],
        ["--mem"],
    ],
    ids=" ".join,
)
def test_everything_else_is_left_to_typer(arguments: list[str]) -> None:
    assert plain_values(arguments, {}) is None


@pytest.mark.parametrize("name", ["POSTHOUSE_DEBUG", "_POSTHOUSE_COMPLETE"])
def test_variables_that_typer_knows_are_left_to_it(name: str) -> None:
    assert plain_values([], {name: "1"}) is None


def test_serving_imports_neither_typer_nor_what_it_brings() -> None:
    code = (
        "import sys, posthouse.cli.main, posthouse.cli.serve;"
        "print([name for name in ('typer', 'rich', 'pydantic', 'posthouse.client') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout == "[]\n"
