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
from tests.torture.rocket.workload import RocketWorkload

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
    control = Control(make, finding, RocketWorkload)
    for seed in range(CONTROL_SEED, CONTROL_SEED + CHANCES):
        verdict = await run_campaign(
            make(), RocketWorkload, place / str(seed), rounds=control.rounds, seed=seed
        )
        if control.found_in(verdict.anomalies):
            return
    pytest.fail(f"no {finding!r} in {CHANCES} campaigns")
