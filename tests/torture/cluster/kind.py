"""What all faults of a cluster have in common: PostgreSQL with a synchronous standby, and two brokers."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.postgres_pair import PostgresPair, running_pair
from tests.torture.campaign import Kind
from tests.torture.cluster.arena import LAST, ClusterArena
from tests.torture.cluster.nodes import NodeRecipe
from tests.torture.recording import Recorder
from tests.torture.workloads import Workload

DATABASE = "posthouse"
NAMES = ("a", "b")
_NEVER_SECONDS = 3600.0
_WITH_REASON = (
    "cannot serve, epoch",
    "another broker has taken over",
    "until the database is back",
    "did not answer until the lease was lost",
)
Change = Callable[[NodeRecipe], NodeRecipe]


def unchanged(recipe: NodeRecipe) -> NodeRecipe:
    return recipe


class ClusterKind(Kind):
    refusals_are_expected = True
    pair: PostgresPair

    def __init__(self, change: Change = unchanged) -> None:
        """`change` breaks a promise of the brokers, for negative controls."""
        self._change = change
        self._stack = ExitStack()

    def open(self, place: Path) -> None:
        (place / "objects").mkdir()
        self.pair = self._stack.enter_context(running_pair(DATABASE))

    def close(self) -> None:
        self._stack.close()

    def plain_recipe(self, place: Path) -> NodeRecipe:
        return NodeRecipe(
            data=place / "data",
            log=place / "broker.log",
            name=LAST,
            database=self.pair.url(DATABASE),
            objects=f"file://{place / 'objects'}",
            retention_check_seconds=_NEVER_SECONDS,
        )

    def recipe(self, place: Path, random: Random) -> NodeRecipe:
        return self.plain_recipe(place)

    def node_recipe(self, place: Path, name: str, random: Random) -> NodeRecipe:
        return replace(self.plain_recipe(place), name=name)

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> ClusterArena:
        return ClusterArena(
            recipe=self.plain_recipe(place),
            workload=workload,
            recorder=recorder,
            random=random,
            refusals_are_expected=True,
            recipes={name: self._change(self.node_recipe(place, name, random)) for name in NAMES},
            database=self.pair.url(DATABASE),
            choices=Random(random.random()),
        )

    @property
    def store(self) -> str:
        return "directory"

    async def strike(self, arena: ClusterArena) -> None:
        raise NotImplementedError

    def alarms(self, complaints: list[str]) -> list[str]:
        """A broker may say that it cannot serve without PostgreSQL, or after another one has taken over."""
        return [each for each in complaints if not any(text in each for text in _WITH_REASON)]
