"""docs/http-api.md: its commands are run, their output is compared, and no call is missing."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from posthouse.protocols.admin.endpoints import ENDPOINTS
from posthouse.testing import ThreadBroker

PAGE = (Path(__file__).parent.parent / "docs" / "http-api.md").read_text()
ADDRESS = "localhost:15672"
ANYTHING = "…"


def examples() -> list[tuple[str, str]]:
    """Commands with their output, in the order of the page."""
    found: list[tuple[list[str], list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        is_command = False
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(([line.removeprefix("$ ")], []))
                is_command = True
            elif is_command and line.startswith("      "):
                found[-1][0].append(line)
            else:
                is_command = False
                found[-1][1].append(line)
    return [("\n".join(command), "\n".join(output)) for command, output in found]


def fits(output: str, expected: str) -> bool:
    parts = [re.escape(part) for part in expected.split(ANYTHING)]
    return re.fullmatch(".*".join(parts), output.strip(), re.DOTALL) is not None


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples of the page need curl")
def test_the_examples_show_what_happens() -> None:
    with ThreadBroker() as broker:
        for command, expected in examples():
            done = subprocess.run(
                ["bash", "-c", command.replace(ADDRESS, broker.admin)],
                check=False,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, (command, done.stderr)
            assert fits(done.stdout, expected), f"{command}\n{done.stdout}"


def test_there_are_examples() -> None:
    assert len(examples()) > 20


@pytest.mark.parametrize("call", [f"{each.method} {each.path}" for each in ENDPOINTS])
def test_every_call_is_in_the_table(call: str) -> None:
    assert f"`{call}`" in PAGE


def test_the_table_has_no_other_calls() -> None:
    calls = {f"{each.method} {each.path}" for each in ENDPOINTS}
    assert set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /v1/[^`]*)`", PAGE)) == calls
