"""docs/http-api.md: its commands are run, their output is compared, and no call is missing."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from posthouse.protocols.admin.endpoints import ENDPOINTS
from posthouse.testing import ThreadBroker
from tests.console_examples import examples, fits

PAGE = (Path(__file__).parent.parent / "docs" / "http-api.md").read_text()
ADDRESS = "localhost:15672"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples of the page need curl")
def test_the_examples_show_what_happens() -> None:
    with ThreadBroker() as broker:
        for command, expected in examples(PAGE):
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
    assert len(examples(PAGE)) > 20


@pytest.mark.parametrize("call", [f"{each.method} {each.path}" for each in ENDPOINTS])
def test_every_call_is_in_the_table(call: str) -> None:
    assert f"`{call}`" in PAGE


def test_the_table_has_no_other_calls() -> None:
    calls = {f"{each.method} {each.path}" for each in ENDPOINTS}
    assert set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /v1/[^`]*)`", PAGE)) == calls
