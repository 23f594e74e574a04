"""Connections that break within a commit, at every message: what was acknowledged is there once, what was
refused is not."""

from collections.abc import AsyncIterator
from random import Random

import pytest

from posthouse.model.clock import ManualClock
from tests.postgres import PostgresServer
from tests.storage.shared.fault_arena import FaultArena, fault_arena
from tests.storage.shared.postgres_proxy import Damage, Direction, ProxyFault

MESSAGES = 8
"""A call has four messages of the client and five of the server, and a round at least two calls."""


@pytest.fixture(params=["posthouse commits 0", "posthouse commits 1"], ids=["inline", "object"])
def watched(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[0, 2], ids=["alone", "members"])
async def arena(
    request: pytest.FixtureRequest, watched: str, postgres: PostgresServer, clock: ManualClock
) -> AsyncIterator[FaultArena]:
    """Of one broker, or of the holder of the lease and two brokers without it."""
    async with fault_arena(postgres, clock, watched=watched, members=request.param) as made:
        yield made


@pytest.mark.parametrize(
    ("direction", "damage"),
    [
        (Direction.TO_SERVER, Damage.CUT),
        (Direction.TO_SERVER, Damage.CUT_WITHIN),
        (Direction.TO_SERVER, Damage.LATE),
        (Direction.TO_SERVER, Damage.DELAY),
        (Direction.TO_CLIENT, Damage.CUT),
        (Direction.TO_CLIENT, Damage.CUT_WITHIN),
        (Direction.TO_CLIENT, Damage.DELAY),
    ],
    ids=lambda value: value.name.lower(),
)
async def test_a_connection_that_breaks_at_any_message(
    arena: FaultArena, direction: Direction, damage: Damage
) -> None:
    await arena.round()
    for message in range(MESSAGES):
        fault = ProxyFault(direction=direction, message=message, damage=damage)
        arena.proxy.arm(fault)
        await arena.round()
        assert arena.proxy.fired == 1
    assert arena.fenced == 0
    assert [each.fenced for each in arena.members] == [None] * len(arena.members)
    assert await arena.anomalies() == []


@pytest.mark.parametrize("members", [0, 2])
async def test_connections_that_break_again_and_again(
    postgres: PostgresServer, clock: ManualClock, members: int
) -> None:
    random = Random(4711)
    async with fault_arena(postgres, clock, members=members) as arena:
        fired = 0
        for _ in range(12):
            arena.proxy.arm(*(_any_fault(random) for _ in range(8)))
            await arena.round()
            fired += arena.proxy.fired
        assert fired > 30
        assert await arena.anomalies() == []


def _any_fault(random: Random) -> ProxyFault:
    direction = random.choice(list(Direction))
    possible = [each for each in Damage if direction is Direction.TO_SERVER or each is not Damage.LATE]
    return ProxyFault(
        direction=direction, message=random.randrange(30), damage=random.choice(possible), seconds=0.02
    )
