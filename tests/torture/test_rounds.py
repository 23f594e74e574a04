"""A few rounds of every fault, and its negative control: the short slice of `make torture`."""

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.directories import IN_MEMORY
from tests.torture.campaign import run_campaign
from tests.torture.catalogue import CHANCES, CONTROL_SEED, ENTRIES, Entry
from tests.torture.mounts import why_not
from tests.torture.rocket_grpc.workload import GrpcWorkload

pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.timeout(180)]

ROUNDS = 2
"""With the first workload: the second begins with what the first has left behind. The other workloads have
one here, and hundreds in `make torture`."""
_SEED = 4711
_WITH_GRPC = {"kill", "disk-full"}
"""Kinds that are tried with consumers of gRPC. The others have them in `make torture`: a round of theirs is
long."""

BY_NAME = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory, where a sync takes no time: this is about what brokers do, not about how long it takes."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as name:
        yield Path(name)


@cache
def _obstacle() -> str | None:
    return why_not()


def _skip_where_nothing_can_be_mounted(entry: Entry) -> None:
    if entry.needs_mount and (reason := _obstacle()) is not None:
        pytest.skip(f"a file system cannot be mounted here: {reason}")


@BY_NAME
async def test_nothing_promised_is_broken(entry: Entry, place: Path) -> None:
    _skip_where_nothing_can_be_mounted(entry)
    for number, workload in enumerate(entry.workloads):
        is_grpc = getattr(workload, "func", workload) is GrpcWorkload
        if is_grpc and entry.name not in _WITH_GRPC:
            continue
        directory = place / str(number)
        rounds = ROUNDS if number == 0 else 1
        verdict = await run_campaign(entry.make(), workload, directory, rounds=rounds, seed=_SEED + number)
        assert verdict.anomalies == []
        assert verdict.rounds == rounds
        assert verdict.faults, "the fault never happened"


@BY_NAME
async def test_a_promise_broken_on_purpose_is_found(entry: Entry, place: Path) -> None:
    _skip_where_nothing_can_be_mounted(entry)
    control = entry.control
    for seed in range(CONTROL_SEED, CONTROL_SEED + CHANCES):
        verdict = await run_campaign(
            control.make(), control.workload, place / str(seed), rounds=control.rounds, seed=seed
        )
        if control.found_in(verdict.anomalies):
            return
    pytest.fail(f"not found: {[text[:300] for text in verdict.anomalies[:3]]}")
