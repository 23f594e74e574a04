"""Two brokers that both believe they hold the lease: only the database can tell which of them does.

One broker neither renews its lease nor looks at the clock, as if time stood still for it. The other takes
over when the lease is over by the clock of the database. The first learns of it when a commit is refused.
"""

from asyncio import sleep
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from random import Random

from posthouse.storage.shared.membership.lease import Lease
from posthouse.storage.shared.stores import SharedStores
from tests.torture.cluster.arena import ClusterArena
from tests.torture.cluster.breaking import BOTH_WRITE, remove_check_of_the_lease
from tests.torture.cluster.kind import ClusterKind
from tests.torture.cluster.kinds import AFTERWARDS, victim
from tests.torture.cluster.nodes import TIMES, NodeRecipe
from tests.torture.recording import Recorder
from tests.torture.workloads import Workload

_BEYOND_LEASE = (0.0, 0.5, 1.5)
_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvincedRecipe(NodeRecipe):
    convinced: Path
    """While this file is there, the broker regards its lease as valid without asking the database."""

    def disturb(self, stores: SharedStores) -> None:
        renew, convinced = Lease.renew, self.convinced

        async def renewed(lease: Lease) -> bool:
            if lease.is_lost or not convinced.exists():
                return await renew(lease)
            lease._deadline = lease._monotonic() + _HOUR
            return True

        Lease.renew = renewed  # type: ignore[method-assign, assignment]


class TwoHolders(ClusterKind):
    name = "cluster-two-holders"

    def __init__(self, *, is_checked: bool = True) -> None:
        """With `is_checked` false the database accepts the commits of both, for the control."""
        super().__init__()
        self._is_checked = is_checked

    def node_recipe(self, place: Path, name: str, random: Random) -> NodeRecipe:
        plain = super().node_recipe(place, name, random)
        values = {each.name: getattr(plain, each.name) for each in fields(plain)}
        return ConvincedRecipe(**values, convinced=place / f"convinced-{name}")

    def arena(self, place: Path, workload: Workload, recorder: Recorder, random: Random) -> ClusterArena:
        arena = super().arena(place, workload, recorder, random)
        if not self._is_checked:
            arena.began = partial(remove_check_of_the_lease, arena)
            arena.is_pinned = True  # so that each coordinator has clients
        return arena

    async def strike(self, arena: ClusterArena) -> None:
        name = await victim(arena)
        recipe = arena.recipes[name]
        assert isinstance(recipe, ConvincedRecipe)
        arena.recorder.fault(f"{name} believes in its lease")
        recipe.convinced.touch()
        try:
            await sleep(TIMES.seconds)
            await arena.replaced(name)
            arena.hang_up()
            await sleep(arena.random.choice(_BEYOND_LEASE))
            if not self._is_checked:
                await arena.progress(BOTH_WRITE)
        finally:
            recipe.convinced.unlink()
        await arena.progress(AFTERWARDS)
