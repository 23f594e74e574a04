"""What is right is not reported; what is planted is, and as what it is."""

import pytest

from tests.checker.judge import check
from tests.checker.model.generate import generate
from tests.checker.planting import bounds, leases, messages, orders, records
from tests.checker.planting.scene import PLANTINGS, NoOpportunity, Planting, Scene
from tests.checker.report import WITHOUT_DURABILITY, Kind

MODULES = (bounds, leases, messages, orders, records)
"""Importing them has registered what they plant."""
TIMES = 10
OPERATIONS = 600


@pytest.mark.parametrize("crashes", [0.0, 0.002, 0.02])
def test_a_perfect_broker_has_no_anomalies(crashes: float) -> None:
    for seed in range(100):
        report = check(generate(seed, OPERATIONS, crashes=crashes))
        assert report.clean, f"seed {seed}\n{report}"


def test_every_kind_is_planted() -> None:
    assert {each.kind for each in PLANTINGS} == set(Kind)


@pytest.mark.parametrize("planting", PLANTINGS, ids=str)
def test_what_is_planted_is_found(planting: Planting) -> None:
    found = 0
    for seed in range(40 * TIMES):
        scene = Scene(generate(seed, OPERATIONS), seed)
        try:
            planting.plant(scene)
        except NoOpportunity:
            continue
        kinds = check(scene.history).kinds
        assert planting.kind in kinds, f"seed {seed}"
        assert kinds <= {planting.kind, *planting.related}, f"seed {seed}"
        lax = check(scene.history, durable=False).kinds
        assert lax == kinds & WITHOUT_DURABILITY
        found += 1
        if found == TIMES:
            return
    pytest.fail(f"only {found} histories had an opportunity")
