"""Go programs with RocketMQ's clients, built beside the Python packages, where Go's caches are, too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_BUILD_SECONDS = 240


def built(source: Path, program: Path) -> Path:
    """Skips the test where the program cannot be built because of what is not on this machine."""
    if shutil.which("go") is None:
        pytest.skip("there is no go on this machine")
    caches = Path(sys.prefix) / "go"
    environment = os.environ | {
        "GOPATH": str(caches / "path"),
        "GOCACHE": str(caches / "cache"),
        "GOFLAGS": "",
    }
    try:
        done = subprocess.run(
            ["go", "build", "-modcacherw", "-o", str(program), "."],
            cwd=source,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"Go did not fetch and build RocketMQ's client in {_BUILD_SECONDS} s")
    if "dial tcp" in done.stderr or "reading https" in done.stderr:
        pytest.skip(f"Go cannot fetch RocketMQ's client: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return program
