"""What gRPC clients of RocketMQ see of a broker that breaks its promises is found."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.directories import IN_MEMORY
from tests.torture.campaign import run_campaign
from tests.torture.catalogue import CHANCES, CONTROL_SEED, Control
from tests.torture.rocket_grpc.breaking import BREAKING, Broken
from tests.torture.rocket_grpc.workload import GrpcWorkload

_SHORT = 3
"""How many of them are tried in every run of the tests."""
pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.timeout(180)]


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("disturb", "finding"),
    [
        pytest.param(*each, id=each[0].__name__, marks=[pytest.mark.long] * (number >= _SHORT))
        for number, each in enumerate(BREAKING)
    ],
)
async def test_a_promise_broken_on_purpose_is_found(
    disturb: Callable[[], None], finding: str, place: Path
) -> None:
    control = Control(lambda: Broken(disturb), finding, GrpcWorkload, rounds=2)
    for seed in range(CONTROL_SEED, CONTROL_SEED + CHANCES):
        verdict = await run_campaign(
            control.make(), GrpcWorkload, place / str(seed), rounds=control.rounds, seed=seed
        )
        if control.found_in(verdict.anomalies):
            return
    pytest.fail(f"no {finding!r} in {CHANCES} campaigns: {[text[:300] for text in verdict.anomalies[:3]]}")
