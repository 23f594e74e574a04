"""Whatever a client sends, the broker serves the others, and its memory stays nearly what it was."""

from collections.abc import Iterator

import pytest

from tests.hostile.attacks import EVERY, Scene
from tests.hostile.peers import GoodClient
from tests.hostile.victim import ALLOWED_GROWTH, MIB, UNPUNISHED, victim

pytestmark = [pytest.mark.timeout(180), pytest.mark.xdist_group("hostile")]

STRIKES = 3


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with victim(tmp_path_factory.mktemp("hostile"), **UNPUNISHED) as process:
        yield Scene(process)


@pytest.fixture(scope="module")
def good(scene: Scene) -> Iterator[GoodClient]:
    with GoodClient(scene.victim.kafka_address) as client:
        for _ in range(200):
            client.produce_one()
        yield client


@pytest.mark.parametrize("name", EVERY)
def test_it_costs_little_and_others_are_served(scene: Scene, good: GoodClient, name: str) -> None:
    before = scene.victim.begin()
    for _ in range(STRIKES):
        EVERY[name](scene)
        good.produce_one()
    growth = scene.victim.peak() - before
    assert scene.victim.is_alive
    assert growth < ALLOWED_GROWTH, f"{growth // MIB} MiB more"
