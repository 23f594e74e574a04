"""Faults of a cluster: of its brokers, of PostgreSQL, of the object store, and of clocks."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.torture.cluster.arena import ClusterArena
from tests.torture.cluster.kind import ClusterKind
from tests.torture.cluster.moving import DRAINS, KILLS, move_scopes
from tests.torture.cluster.nodes import TIMES, NodeRecipe
from tests.torture.kinds.clock_jump import JUMPS_MS, jump, make_exact

_OF_HOLDER = 0.7
"""How often a fault strikes the broker that coordinates. Queues lie with all of them."""
AFTERWARDS = 20
"""Acknowledgements after a fault: clients go on, whatever has happened."""


async def victim(arena: ClusterArena, of_holder: float = _OF_HOLDER) -> str:
    await arena.ensure_running()
    await arena.some_progress()
    is_holder = arena.random.random() < of_holder
    return await (arena.holder() if is_holder else arena.standby())


class BrokerKill(ClusterKind):
    name = "cluster-kill"

    async def strike(self, arena: ClusterArena) -> None:
        await arena.kill_node(await victim(arena))
        await arena.progress(AFTERWARDS)


class BrokerPause(ClusterKind):
    """For longer than the lease: another broker has taken over when it goes on."""

    name = "cluster-pause"
    beyond_lease: tuple[float, ...] = (-1.0, 0.5, 1.5)
    """Seconds. The shortest pause ends before the lease does."""
    of_holder = _OF_HOLDER
    afterwards = AFTERWARDS

    async def strike(self, arena: ClusterArena) -> None:
        name = await victim(arena, self.of_holder)
        node = arena.nodes[name]
        arena.recorder.fault(f"pause {name}")
        node.pause()
        try:
            await asyncio.sleep(TIMES.seconds + arena.random.choice(self.beyond_lease))
        finally:
            node.resume()
        await arena.progress(self.afterwards)


class ScopeMove(ClusterKind):
    """Operators move scopes that clients use, those of queues among them, or drain a broker; some brokers are
    killed in the middle of it."""

    name = "cluster-move"
    drains = DRAINS
    kills = KILLS
    afterwards = AFTERWARDS

    async def strike(self, arena: ClusterArena) -> None:
        await arena.ensure_running()
        await arena.some_progress()
        await move_scopes(arena, drains=self.drains, kills=self.kills)
        await arena.progress(self.afterwards)


class DatabaseKill(ClusterKind):
    """Killed and started again, or paused."""

    name = "cluster-database-kill"

    async def strike(self, arena: ClusterArena) -> None:
        await arena.ensure_running()
        await arena.some_progress()
        seconds = arena.random.choice((0.0, 0.5, 3.0))
        if arena.random.random() < 0.3:
            arena.recorder.fault("pause of the database")
            self.pair.primary.pause()
            await asyncio.sleep(seconds)
            self.pair.primary.resume()
        else:
            arena.recorder.fault("kill of the database")
            self.pair.primary.kill()
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self.pair.primary.start)
        await arena.progress(AFTERWARDS)


class DatabaseFailover(ClusterKind):
    """The synchronous standby of PostgreSQL takes its place."""

    name = "cluster-failover"

    async def strike(self, arena: ClusterArena) -> None:
        await arena.ensure_running()
        await arena.some_progress()
        arena.recorder.fault("failover of the database")
        await asyncio.to_thread(self.pair.fail_over)
        await arena.progress(AFTERWARDS)


class ObjectFaults(ClusterKind):
    """Uploads are slow, fail, or succeed and are answered with an error, all the time."""

    name = "cluster-objects"

    def node_recipe(self, place: Path, name: str, random: Random) -> NodeRecipe:
        return replace(super().node_recipe(place, name, random), object_faults=random.getrandbits(32))

    async def strike(self, arena: ClusterArena) -> None:
        name = await victim(arena)
        arena.recorder.fault("object store")
        if arena.random.random() < 0.5:
            await arena.kill_node(name)
        await arena.progress(AFTERWARDS)


class BrokerClockJump(ClusterKind):
    """The clock of one broker jumps by hours and days. Leases are of the clock of the database."""

    name = "cluster-clock-jump"
    kills = 0.4
    """How often the broker is killed then."""

    def node_recipe(self, place: Path, name: str, random: Random) -> NodeRecipe:
        ahead = place / f"ahead-{name}"
        make_exact(ahead)
        return replace(super().node_recipe(place, name, random), ahead=ahead)

    async def strike(self, arena: ClusterArena) -> None:
        name = await victim(arena)
        ahead = arena.recipes[name].ahead
        assert ahead is not None
        arena.recorder.fault(f"clock of {name}")
        jump(ahead, arena.random.choice(JUMPS_MS))
        await arena.some_progress()
        if arena.random.random() < self.kills:
            await arena.kill_node(name)
        await arena.progress(AFTERWARDS)


class AllFaults(BrokerClockJump):
    """One after the other, on the same brokers: for a short run."""

    name = "cluster-all"

    def __init__(self) -> None:
        super().__init__()
        self._kinds: list[ClusterKind] = [
            self,
            BrokerKill(),
            ScopeMove(),
            BrokerPause(),
            DatabaseKill(),
            DatabaseFailover(),
            ObjectFaults(),
        ]

    @property
    def count(self) -> int:
        return len(self._kinds)

    def node_recipe(self, place: Path, name: str, random: Random) -> NodeRecipe:
        return replace(super().node_recipe(place, name, random), object_faults=random.getrandbits(32))

    async def strike(self, arena: ClusterArena) -> None:
        kind, *others = self._kinds
        if kind is self:
            await super().strike(arena)
        else:
            kind.pair = self.pair
            await kind.strike(arena)
        self._kinds = [*others, kind]
