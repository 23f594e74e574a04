"""Loading of groups: of all at once in a broker that is alone, of one scope after the other in a cluster."""

import asyncio
from collections.abc import Mapping, Sequence

from posthouse.broker.groups.committing import GroupOffsets
from posthouse.broker.groups.handover import GroupHandover
from posthouse.broker.groups.offsets import group_of
from posthouse.broker.groups.registry import Registry
from posthouse.broker.groups.rules import GroupRules
from posthouse.broker.groups.streams import StreamsGroup
from posthouse.broker.groups.streams_store import stored_topologies
from posthouse.broker.held_scopes import HeldScopes
from posthouse.model.ids import GroupId
from posthouse.model.scopes import Scope, scope_of_group
from posthouse.storage.contract import Storage
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space

_GROUPS_PER_TURN = 1000
"""Groups per iteration of the event loop."""


class GroupLoading:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        registry: Registry,
        offsets: GroupOffsets,
        rules: GroupRules,
        held: HeldScopes,
        handover: GroupHandover,
    ) -> None:
        self._storage = storage
        self._registry = registry
        self._offsets = offsets
        self._rules = rules
        self._held = held
        self._handover = handover
        held.when_released(self._dismiss)

    def load_all(self) -> None:
        take = self._storage.take_state
        self._offsets.load(take(Space.OFFSETS))
        self._handover.discard(take(Space.GROUP_MEMBERS))
        self._take(take(Space.GROUPS), take(Space.STREAMS_GROUPS), self._offsets.groups())

    async def load(self, scope: Scope, shared: SharedState) -> None:
        """The groups of a scope that this broker has taken. Raises Unavailable."""
        shard = scope.group_shard
        assert shard is not None
        stored = await shared.offsets_of_shard(shard)
        empty = await shared.of_shard(Space.GROUPS, shard)
        topologies = await shared.of_shard(Space.STREAMS_GROUPS, shard)
        left = await shared.of_shard(Space.GROUP_MEMBERS, shard)
        # A topic with offsets is older than they are: if it is unknown now, it was deleted.
        await self._storage.refresh_definitions()
        resumed = await self._handover.taken(left)
        groups = {group_of(key) for key in stored.committed} - resumed.keys()
        self._offsets.load(dict(stored.committed))
        if self._offsets.reading is not None:
            self._offsets.reading.loaded(stored)
        self._take(empty, topologies, [group for group in groups if self._offsets.has(group)])
        self._handover.resume(resumed)

    def _take(
        self, empty: Mapping[bytes, bytes], topologies: Mapping[bytes, bytes], with_offsets: Sequence[GroupId]
    ) -> None:
        self._registry.load(empty, with_offsets)
        for group_id, topology in stored_topologies(topologies):
            self._registry.put(group_id, StreamsGroup(self._rules.streams(group_id), topology))
            self._registry.touched(group_id)

    async def leave_all(self) -> None:
        """Store the members of all groups, for the brokers that take the scopes when this one has stopped.
        Raises Unavailable."""
        await self._handover.leave(each for each, _ in list(self._registry) if self._held.serves(each))

    def _dismiss(self, scope: Scope) -> None:
        self._registry.dismiss(lambda group_id: scope_of_group(group_id) == scope)

    async def unload(self, scope: Scope) -> None:
        """After the scope was released: wait for work on its groups, store their members, and forget them.
        Raises Unavailable; then they are forgotten as well."""
        await self._held.unused(scope)
        known = dict.fromkeys([*self._registry.known(), *self._offsets.groups()])
        moved = []
        for count, group_id in enumerate(known, 1):
            if scope_of_group(group_id) == scope:
                moved.append(group_id)
            if count % _GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)
        try:
            await self._handover.leave(moved)
        finally:
            self._offsets.unload(moved)
            self._registry.unload(moved)
