"""Brokers on several hosts that break their promises, for negative controls."""

from functools import partial
from pathlib import Path
from random import Random

from tests.torture.cluster.breaking import StubbornRecipe, changed_to, remove_check_of_the_lease
from tests.torture.network.arena import NetworkArena
from tests.torture.network.faults import PausedBroker
from tests.torture.network.kind import NetworkKind
from tests.torture.recording import Recorder
from tests.torture.workloads import Workload

_PAUSES = (3.5,)


class Unfenced(NetworkKind):
    """A broker that was paused does not learn that it has lost its lease, and the database does not check."""

    def __init__(self) -> None:
        super().__init__("unfenced", [PausedBroker(_PAUSES)], changed_to(StubbornRecipe))

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> NetworkArena:
        arena = super().arena(place, workload, recorder, random)
        arena.began = partial(remove_check_of_the_lease, arena)
        return arena
