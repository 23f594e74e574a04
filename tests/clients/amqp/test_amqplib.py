"""amqplib for Node.js, unmodified. The scenarios are in node/scenarios.mjs."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.amqp.rabbit import Rabbit

VERSION = "2.3.1"
HERE = Path(__file__).parent / "node"
SCENARIOS = re.findall(
    r"^  (\w+),$", (HERE / "scenarios.mjs").read_text().rpartition("export const scenarios")[2], re.MULTILINE
)
POSTHOUSE_ONLY = ("delayedMessages",)


@pytest.fixture(scope="module")
def amqplib() -> Path:
    """The directory where it is installed; kept beside the Python packages for the next run."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"there is no {' and no '.join(missing)} on this machine")
    directory = Path(sys.prefix) / "node" / f"amqplib-{VERSION}"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "node_modules" / "amqplib" / "package.json").exists():
            _install(directory)
    return directory


def _install(directory: Path) -> None:
    options = ("--no-audit", "--no-fund", "--no-save", "--loglevel", "error")
    command = ["npm", "install", "--prefix", str(directory), *options, f"amqplib@{VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm could not install amqplib {VERSION}: {done.stderr.strip()[-300:]}")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(rabbit: Rabbit, amqplib: Path, scenario: str) -> None:
    if scenario in POSTHOUSE_ONLY and rabbit.kafka is None:
        pytest.skip("RabbitMQ, as it comes, does not have this")
    done = subprocess.run(
        ["node", str(HERE / "run.mjs"), rabbit.url, scenario],
        env=os.environ | {"AMQPLIB_DIRECTORY": str(amqplib)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
