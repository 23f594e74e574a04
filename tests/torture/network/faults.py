"""Faults of hosts and links, by name. When `strike` returns, all links are up; a broker may be dead."""

import asyncio
from collections.abc import Sequence

from tests.torture.cluster.moving import DRAINS, KILLS, move_scopes
from tests.torture.cluster.nodes import TIMES
from tests.torture.kinds.clock_jump import JUMPS_MS, jump
from tests.torture.network.arena import BROKERS, CLIENTS, DATABASE, STORE, NetworkArena

AFTERWARDS = 20
"""Acknowledgements after a fault: clients go on, whatever has happened."""
_OF_HOLDER = 0.5
"""How often a fault strikes the broker that coordinates."""
_SHORT = 0.5
_BEYOND_LEASE = TIMES.seconds + 1.0
_BEYOND_TIMEOUTS = 7.0
"""Longer than brokers wait for PostgreSQL to answer."""


class NetworkFault:
    name: str
    needs_store = False
    """Whether nobody would notice it where objects are in a directory."""

    async def strike(self, arena: NetworkArena) -> None:
        raise NotImplementedError


async def _broker(arena: NetworkArena, of_holder: float = _OF_HOLDER) -> str:
    is_holder = arena.random.random() < of_holder
    return await (arena.holder() if is_holder else arena.standby())


class KilledBroker(NetworkFault):
    name = "kill"

    async def strike(self, arena: NetworkArena) -> None:
        await arena.kill_node(await _broker(arena))


class PausedBroker(NetworkFault):
    """When it goes on, another broker has taken over, or not yet."""

    name = "pause"

    def __init__(
        self,
        seconds: Sequence[float] = (TIMES.seconds - 1.0, _BEYOND_LEASE),
        *,
        of_holder: float = _OF_HOLDER,
        afterwards: int = 0,
    ) -> None:
        """`afterwards` are more acknowledgements after it, for controls."""
        self._seconds = seconds
        self._of_holder = of_holder
        self._afterwards = afterwards

    async def strike(self, arena: NetworkArena) -> None:
        name = await _broker(arena, self._of_holder)
        arena.recorder.fault(f"pause {name}")
        arena.nodes[name].pause()
        try:
            await asyncio.sleep(arena.random.choice(self._seconds))
        finally:
            arena.nodes[name].resume()
        await arena.progress(self._afterwards)


class CutLink(NetworkFault):
    """Between a broker and another host, in both directions or in one."""

    def __init__(
        self,
        *,
        one_way: bool = False,
        seconds: Sequence[float] = (_SHORT, _BEYOND_LEASE, _BEYOND_TIMEOUTS),
        others: Sequence[str] = (DATABASE, DATABASE, STORE, CLIENTS, *BROKERS),
    ) -> None:
        self.name = "one-way cut" if one_way else "cut"
        self._one_way = one_way
        self._seconds = seconds
        self._others = others

    async def strike(self, arena: NetworkArena) -> None:
        name = await _broker(arena)
        other = arena.random.choice([each for each in self._others if each != name and each in arena.hosts])
        ends = [(name, other), (other, name)]
        if self._one_way:
            ends = [arena.random.choice(ends)]
        arena.recorder.fault(f"{self.name} " + " and ".join(f"{source}-{target}" for source, target in ends))
        await _cut(arena, ends, arena.random.choice(self._seconds))


class IsolatedBroker(NetworkFault):
    """From all other hosts at once, or from all but its clients."""

    name = "isolation"

    async def strike(self, arena: NetworkArena) -> None:
        name = await _broker(arena)
        spared = {name, CLIENTS} if arena.random.random() < 0.5 else {name}
        others = [each for each in arena.hosts if each not in spared]
        arena.recorder.fault(f"isolation of {name}")
        ends = [pair for other in others for pair in ((name, other), (other, name))]
        await _cut(arena, ends, arena.random.choice((_BEYOND_LEASE, _BEYOND_TIMEOUTS)))


async def _cut(arena: NetworkArena, ends: list[tuple[str, str]], seconds: float) -> None:
    for source, target in ends:
        arena.network.cut(source, target)
    try:
        await asyncio.sleep(seconds)
    finally:
        arena.network.heal()


class SlowLink(NetworkFault):
    """Everything that a host sends passes a narrow link."""

    name = "slow link"

    async def strike(self, arena: NetworkArena) -> None:
        host = arena.random.choice([each for each in arena.hosts if each != CLIENTS])
        arena.recorder.fault(f"slow link of {host}")
        arena.network.slow_down(host, kbit=arena.random.choice((500, 2000, 10_000)), delay_ms=20)
        try:
            await asyncio.sleep(arena.random.choice((1.0, _BEYOND_LEASE)))
        finally:
            arena.network.heal()


class KilledDatabase(NetworkFault):
    name = "restart of the database"

    async def strike(self, arena: NetworkArena) -> None:
        arena.recorder.fault(self.name)
        arena.pair.primary.kill()
        await asyncio.sleep(arena.random.choice((0.0, _SHORT, _BEYOND_LEASE)))
        await arena.on(DATABASE, arena.pair.primary.start)


class PausedDatabase(NetworkFault):
    name = "pause of the database"

    async def strike(self, arena: NetworkArena) -> None:
        arena.recorder.fault(self.name)
        arena.pair.primary.pause()
        try:
            await asyncio.sleep(arena.random.choice((_SHORT, _BEYOND_LEASE)))
        finally:
            arena.pair.primary.resume()


class FailedOverDatabase(NetworkFault):
    name = "failover of the database"

    async def strike(self, arena: NetworkArena) -> None:
        arena.recorder.fault(self.name)
        await arena.on(DATABASE, arena.pair.fail_over)


class StoreAway(NetworkFault):
    """The server of objects is killed and comes back, stands still, or cannot be reached by one broker."""

    name = "object store"
    needs_store = True

    async def strike(self, arena: NetworkArena) -> None:
        assert arena.store is not None
        arena.recorder.fault(self.name)
        chance = arena.random.random()
        if chance < 0.3:
            name = await _broker(arena)
            await _cut(arena, [(name, STORE), (STORE, name)], arena.random.choice((_SHORT, _BEYOND_LEASE)))
        elif chance < 0.6:
            arena.store.pause()
            await asyncio.sleep(arena.random.choice((_SHORT, _BEYOND_LEASE)))
            arena.store.resume()
        else:
            arena.store.kill()
            await asyncio.sleep(arena.random.choice((0.0, _BEYOND_LEASE)))
            await arena.on(STORE, arena.store.start)


class JumpedClock(NetworkFault):
    """Of one broker, by hours and days. Leases are of the clock of the database."""

    name = "clock jump"

    def __init__(self, *, kills: float = 0.4) -> None:
        """`kills` is how often the broker is killed then."""
        self._kills = kills

    async def strike(self, arena: NetworkArena) -> None:
        name = await _broker(arena)
        ahead = arena.recipes[name].ahead
        assert ahead is not None
        arena.recorder.fault(f"clock of {name}")
        jump(ahead, arena.random.choice(JUMPS_MS))
        await arena.some_progress()
        if arena.random.random() < self._kills:
            await arena.kill_node(name)


class MovedScopes(NetworkFault):
    """Operators move scopes that clients use, or drain a broker."""

    name = "move"

    def __init__(self, *, drains: float = DRAINS, kills: float = KILLS, afterwards: int = 0) -> None:
        """`afterwards` are more acknowledgements after it, for controls."""
        self._drains = drains
        self._kills = kills
        self._afterwards = afterwards

    async def strike(self, arena: NetworkArena) -> None:
        await move_scopes(arena, drains=self._drains, kills=self._kills)
        await arena.progress(self._afterwards)


class RollingRestart(NetworkFault):
    """Every broker ends in good order and starts again, one after the other."""

    name = "rolling restart"

    def __init__(self, *, gently: bool = True) -> None:
        self._gently = gently

    async def strike(self, arena: NetworkArena) -> None:
        for name in arena.random.sample(BROKERS, len(BROKERS)):
            arena.recorder.fault(f"restart of {name}")
            if self._gently:
                await arena.nodes[name].stop()
            else:
                arena.nodes[name].kill()
            await arena.start_nodes()
            await arena.progress(AFTERWARDS)
