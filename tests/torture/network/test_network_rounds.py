"""Three faults of hosts and links, under all workloads at once: the short slice of `make torture-cluster`."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.node_life import Role
from tests.directories import IN_MEMORY
from tests.postgres import cluster_only, need_postgres
from tests.torture.campaign import run_campaign
from tests.torture.catalogue import CHANCES, CONTROL_SEED, Control
from tests.torture.everything import Everything
from tests.torture.network.arena import NetworkArena
from tests.torture.network.catalogue import BY_NAME, MEMBER_CONTROLS, kind
from tests.torture.network.faults import CutLink, KilledBroker, NetworkFault
from tests.torture.network.namespaces import why_not

pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.timeout(300)]

_SEED = 4711


@pytest.fixture
def place() -> Iterator[Path]:
    need_postgres()
    if (reason := why_not()) is not None:
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as name:
        yield Path(name)


class _InTurn(NetworkFault):
    """Each of some faults once."""

    name = "in turn"

    def __init__(self, *faults: NetworkFault) -> None:
        self._left = list(faults)

    async def strike(self, arena: NetworkArena) -> None:
        await self._left.pop(0).strike(arena)


async def test_a_broker_is_killed_and_links_are_cut(place: Path) -> None:
    faults: list[NetworkFault] = [
        KilledBroker(),
        CutLink(seconds=(3.0,)),
        CutLink(one_way=True, seconds=(3.0,)),
    ]
    verdict = await run_campaign(
        kind("slice", _InTurn(*faults)), Everything, place / "campaign", rounds=len(faults), seed=_SEED
    )
    assert verdict.anomalies == []
    assert verdict.rounds == len(faults)
    assert verdict.faults.total() == len(faults)


@cluster_only
@pytest.mark.parametrize("name", ["net-kill", "net-pause", "net-cut"])
async def test_a_promise_broken_on_purpose_is_found(name: str, place: Path) -> None:
    """`make torture-cluster` tries the control of every kind."""
    await _is_found(BY_NAME[name].control, place)


@cluster_only
@pytest.mark.skipif(not hasattr(Role, "MEMBER"), reason="only one broker serves clients")
@pytest.mark.parametrize("name", MEMBER_CONTROLS)
async def test_a_promise_that_a_member_breaks_is_found(name: str, place: Path) -> None:
    await _is_found(MEMBER_CONTROLS[name], place)


async def _is_found(control: Control, place: Path) -> None:
    for seed in range(CONTROL_SEED, CONTROL_SEED + CHANCES):
        verdict = await run_campaign(control.make(), control.workload, place / str(seed), rounds=4, seed=seed)
        if control.found_in(verdict.anomalies):
            return
    pytest.fail(f"not found: {[text[:300] for text in verdict.anomalies[:3]]}")
