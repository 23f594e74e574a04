"""`make cluster`: a broker is killed, and nothing is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgres import need_postgres


@pytest.mark.timeout(600)
@pytest.mark.skipif(os.environ.get("POSTHOUSE_CLUSTER") != "1", reason="in make test-cluster only")
@pytest.mark.parametrize("objects", [[], ["--objects", "moto"]], ids=["first", "moto"])
def test_it_shows_that_nothing_is_lost(objects: list[str]) -> None:
    need_postgres()
    done = subprocess.run(
        [sys.executable, "-m", "tools.cluster", "--once", *objects],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "broker two has taken the lease (epoch 2)" in done.stdout
    assert "nothing lost" in done.stdout
