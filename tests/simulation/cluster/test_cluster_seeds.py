"""A slice of `make simulate` for three brokers on one database: it repeats, and it can fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.cluster.cluster_controls import CLUSTER_CONTROLS
from tests.simulation.cluster.cluster_scenario import run

ROOT = Path(__file__).parents[3]
ENOUGH = 100
"""Seeds within which a missing safeguard must show."""
FIRST = {"forgotten-referrals": 4, "hasty-acknowledgement": 4, "no-fencing": 8, "open-door": 3}
"""Seeds to begin with, where those before did not show it."""
FOUND_FAULTS = (5749,)
"""A batch was stored without the first one of its producer, which repeated that forever."""
SLOW = "early-service"
"""A control that takes minutes: its database is slow."""


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, as by hand: then a failing seed is the same there."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--cluster", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_four_seeds_keep_every_promise() -> None:
    done = simulate("--seeds", "4", "--seed", "1", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 seeds with anomalies" in done.stdout


@pytest.mark.parametrize("seed", FOUND_FAULTS)
def test_a_seed_that_found_a_fault_keeps_every_promise(seed: int) -> None:
    done = simulate("--replay", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_happens_again_exactly_as_before() -> None:
    first, second = run(2, keep_trace=True), run(2, keep_trace=True)
    assert first.trace == second.trace
    assert first.digest == second.digest
    assert first.history == second.history


def test_a_seed_is_the_same_in_another_process() -> None:
    first, second = simulate("--replay", "3"), simulate("--replay", "3")
    assert "digest" in first.stdout
    assert first.stdout == second.stdout


def test_seeds_differ() -> None:
    assert run(1).digest != run(2).digest


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "name",
    [*sorted(set(CLUSTER_CONTROLS) - {"none", SLOW}), pytest.param(SLOW, marks=pytest.mark.long)],
)
def test_a_missing_safeguard_shows(name: str) -> None:
    first = FIRST.get(name, 1)
    results = (run(seed, control=CLUSTER_CONTROLS[name]) for seed in range(first, first + ENOUGH))
    bad = next((result for result in results if result.report.anomalies), None)
    assert bad is not None, f"{ENOUGH} seeds, and nobody has noticed"
