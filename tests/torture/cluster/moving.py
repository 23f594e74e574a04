"""Scopes move while clients use them, as operators move them: one by one, or by draining a broker."""

from collections.abc import Sequence

from posthouse.client.admin_client import part
from posthouse.model.scopes import COORDINATOR, Scope, scope_of_group, scope_of_transactional_id
from tests.torture.cluster.arena import ClusterArena
from tests.torture.queues.places import PLACES
from tests.torture.queues.workload import FEEDER
from tests.torture.shares.members import GROUP as SHARE_GROUP
from tests.torture.stream.workload import CLASSIC_GROUP, GROUP, TRANSACTIONAL_IDS

USED: Sequence[Scope] = tuple(
    dict.fromkeys(
        [
            COORDINATOR,
            *(place.scope for place in PLACES),
            *(scope_of_group(name) for name in (GROUP, CLASSIC_GROUP, SHARE_GROUP)),
            *(scope_of_transactional_id(id) for id in (*TRANSACTIONAL_IDS, FEEDER)),
        ]
    )
)
"""The scopes that clients of the workloads need."""
DRAINS = 0.3
"""How often a broker is drained, instead of single scopes being moved."""
KILLS = 0.3
"""How often one of the brokers is killed before that is done."""
_MOST_MOVES = 4


async def move_scopes(arena: ClusterArena, *, drains: float = DRAINS, kills: float = KILLS) -> None:
    """Returns when the scopes have moved, if no broker was killed; a broker that was drained is wanted
    again. `drains` and `kills` are chances."""
    if arena.random.random() < drains:
        await _drain(arena, kills)
    else:
        await _move(arena, kills)


async def _move(arena: ClusterArena, kills: float) -> None:
    """Several scopes, always one of namespaces among them."""
    scopes = {arena.random.choice(PLACES).scope}
    scopes |= set(arena.random.sample(USED, arena.random.randint(0, _MOST_MOVES - 1)))
    wanted: dict[Scope, str] = {}
    for scope in sorted(scopes):
        holder = await arena.holder(scope)
        wanted[scope] = arena.random.choice([name for name in arena.nodes if name != holder])
        arena.recorder.fault(f"move of {scope} to {wanted[scope]}")
        await arena.order_move(scope, wanted[scope])
    if arena.random.random() < kills:
        await arena.progress(arena.random.randint(0, 3))
        await arena.kill_node(arena.random.choice(list(arena.nodes)))
        return
    for scope, name in wanted.items():
        await arena.held_by(scope, name)


async def _drain(arena: ClusterArena, kills: float) -> None:
    name = arena.random.choice(list(arena.nodes))
    arena.recorder.fault(f"drain of {name}")
    await arena.order(f"/v1/cluster/brokers/{part(name)}/drain")
    if arena.random.random() < kills:
        await arena.progress(arena.random.randint(0, 20))
        await arena.kill_node(arena.random.choice(list(arena.nodes)))
        await arena.start_nodes()
    else:
        for place in PLACES:
            await arena.not_held_by(place.scope, name)
        await arena.some_progress()
    await arena.order(f"/v1/cluster/brokers/{part(name)}/undrain")
