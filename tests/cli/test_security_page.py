"""The commands of docs/security.md, as the page has them, in the order of the page."""

import re
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from posthouse.cli.main import run
from tests.cli.programs import environment

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
SECONDS = 60


def consoles(section: str) -> list[str]:
    [text] = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    return re.findall(r"```console\n(.*?)```", text, re.DOTALL)


def commands(console: str) -> list[str]:
    """With lines that are continued put together."""
    whole = console.replace("\\\n", " ")
    return [line[2:] for line in whole.splitlines() if line.startswith("$ ")]


def outputs(console: str) -> list[str]:
    whole = console.replace("\\\n", " ")
    return [line for line in whole.splitlines() if not line.startswith("$ ")]


def free_port() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        return str(taken.getsockname()[1])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A directory with the program, for the path of the shell."""
    directory = tmp_path / "bin"
    directory.mkdir()
    file = directory / "posthouse"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -m posthouse.cli.main "$@"\n')
    file.chmod(0o755)
    return directory


def test_from_zero(tmp_path: Path, program: Path) -> None:
    prepare, serve, *rest = consoles("From zero to TLS, users and permissions")
    ports = {"9093": free_port(), "5671": free_port()}
    [start] = commands(serve)
    # The second terminal waits until the broker says that it is ready; the rest is as the page has it.
    lines = [
        "set -e",
        *commands(prepare),
        "mkfifo ready",
        f"{start} > ready &",
        "trap 'kill %1; wait' EXIT",
        "exec 3< ready; read -r line <&3",
        *(command for console in rest for command in commands(console)),
    ]
    script = "\n".join(lines)
    for port, free in ports.items():
        assert port in script
        script = script.replace(port, free)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**(own := environment()), "PATH": f"{program}:{own['PATH']}"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [line for console in rest for line in outputs(console)]


@pytest.mark.parametrize("section", ["What you may do", "How much you may ask for"])
def test_the_other_examples_are_commands(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no broker: whatever is well said fails for that reason alone."""
    [console] = consoles(section)
    for command in commands(console):
        words = re.sub(r"\s+#.*", "", command).replace("'", "").split()
        assert words.pop(0) == "posthouse"
        assert run(["--bootstrap", "127.0.0.1:1", *words]) == 1, command
        assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err
