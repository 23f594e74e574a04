"""Two rounds of every fault of a cluster, and one control: the short slice of `make torture-cluster`."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.directories import IN_MEMORY
from tests.postgres import cluster_only, need_postgres
from tests.torture.campaign import Kind, MakeWorkload, run_campaign
from tests.torture.catalogue import CHANCES, CONTROL_SEED
from tests.torture.cluster.catalogue import BY_NAME, FED_QUEUES, ON_OBJECTS
from tests.torture.cluster.cutting import DatabaseCut
from tests.torture.cluster.kinds import AllFaults
from tests.torture.cluster.two_holders import TwoHolders
from tests.torture.stream.workload import StreamWorkload

pytestmark = pytest.mark.timeout(180)

_SEED = 4711


@pytest.fixture
def place() -> Iterator[Path]:
    need_postgres()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as name:
        yield Path(name)


async def _nothing_is_broken(kind: Kind, workload: MakeWorkload, place: Path, rounds: int) -> None:
    verdict = await run_campaign(kind, workload, place / "campaign", rounds=rounds, seed=_SEED)
    assert verdict.anomalies == []
    assert verdict.rounds == rounds
    assert verdict.faults.total() >= rounds


@pytest.mark.parametrize("workload", [ON_OBJECTS, FED_QUEUES], ids=["stream", "queues"])
async def test_every_fault_once_in_turn(workload: MakeWorkload, place: Path) -> None:
    kind = AllFaults()
    await _nothing_is_broken(kind, workload, place, kind.count)


@cluster_only
@pytest.mark.parametrize("kind", [DatabaseCut, TwoHolders], ids=lambda kind: kind.name)
async def test_faults_that_need_brokers_of_their_own(kind: type[Kind], place: Path) -> None:
    await _nothing_is_broken(kind(), StreamWorkload, place, 2)


@cluster_only
@pytest.mark.parametrize("name", [DatabaseCut.name, TwoHolders.name])
async def test_a_promise_broken_on_purpose_is_found(name: str, place: Path) -> None:
    """`make torture-cluster` tries the control of every kind."""
    control = BY_NAME[name].control
    for seed in range(CONTROL_SEED, CONTROL_SEED + CHANCES):
        verdict = await run_campaign(control.make(), control.workload, place / str(seed), rounds=2, seed=seed)
        if control.found_in(verdict.anomalies):
            return
    pytest.fail(f"not found: {[text[:300] for text in verdict.anomalies[:3]]}")
