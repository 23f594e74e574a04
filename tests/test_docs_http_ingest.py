"""docs/http-ingest.md: its commands are run, one after the other, and their output is compared."""

import shutil
import subprocess
from pathlib import Path

import pytest

from posthouse.testing import ThreadBroker
from tests.console_examples import examples, fits

PAGE = (Path(__file__).parent.parent / "docs" / "http-ingest.md").read_text()
ADDRESS = "localhost:15672"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples of the page need curl")
def test_the_examples_show_what_happens(tmp_path: Path) -> None:
    with ThreadBroker() as broker:
        for command, expected in examples(PAGE):
            done = subprocess.run(
                ["bash", "-c", command.replace(ADDRESS, broker.admin)],
                check=False,
                capture_output=True,
                text=True,
                timeout=60,
                cwd=tmp_path,
            )
            assert done.returncode == 0, (command, done.stderr)
            assert fits(done.stdout, expected), f"{command}\n{done.stdout}"


def test_there_are_examples() -> None:
    assert len(examples(PAGE)) > 15
