"""What RocketMQ's clients see of a broker that breaks its promises is found."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.directories import IN_MEMORY
from tests.torture.campaign import Kind, run_campaign
from tests.torture.catalogue import CHANCES, CONTROL_SEED, LOST, Control
from tests.torture.kinds.broken_disk import SyncError
from tests.torture.kinds.forgetting import EarlyFailpointKill, EarlyKill
from tests.torture.rocket.breaking import BREAKING
from tests.torture.rocket.workload import RocketWorkload
from tests.torture.rocket_grpc.breaking import Broken

_SHORT = 2
"""How many of the disturbed brokers are tried in every run of the tests."""
_ROUNDS = 8
"""So many that a message can be tried more often than it may be."""
pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.timeout(180)]


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("make", "finding"),
    [
        (EarlyKill, LOST),
        (EarlyFailpointKill, LOST),
        (lambda: SyncError(silent=True), "accepted after a failed sync"),
    ],
    ids=["kill", "failpoint", "sync-error"],
)
async def test_a_promise_broken_on_purpose_is_found(
    make: Callable[[], Kind], finding: str, place: Path
) -> None:
    await _check_found(Control(make, finding, RocketWorkload), place)


@pytest.mark.parametrize(
    ("disturb", "finding"),
    [
        pytest.param(*each, id=each[0].__name__, marks=[pytest.mark.long] * (number >= _SHORT))
        for number, each in enumerate(BREAKING)
    ],
)
async def test_a_promise_to_consumers_is_broken_on_purpose(
    disturb: Callable[[], None], finding: str, place: Path
) -> None:
    await _check_found(Control(lambda: Broken(disturb), finding, RocketWorkload, rounds=_ROUNDS), place)


async def _check_found(control: Control, place: Path) -> None:
    for seed in range(CONTROL_SEED, CONTROL_SEED + CHANCES):
        verdict = await run_campaign(
            control.make(), RocketWorkload, place / str(seed), rounds=control.rounds, seed=seed
        )
        if control.found_in(verdict.anomalies):
            return
    found = [text[:300] for text in verdict.anomalies[:3]]
    pytest.fail(f"no {control.finding!r} in {CHANCES} campaigns: {found}")
