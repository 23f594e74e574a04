"""Members of groups that move in good order from one broker to another go on as they are.

The broker that gives groups up, or stops, stores their members (`snapshot_format`) when nothing uses the
groups any more. The next one removes what it reads, and serves the groups when that is durable. So members
that are stored are never older than what a broker has served since. A broker that dies stores nothing:
members join again. Those of streams groups are not stored.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from posthouse.broker.groups.classic import ClassicGroup
from posthouse.broker.groups.classic_snapshot import ClassicSnapshot, classic_snapshot, resumed_classic
from posthouse.broker.groups.consumer import ConsumerGroup
from posthouse.broker.groups.consumer_snapshot import consumer_snapshot, resumed_consumer
from posthouse.broker.groups.registry import Group, Registry
from posthouse.broker.groups.rules import GroupRules
from posthouse.broker.groups.snapshot_format import (
    Snapshot,
    StoredSnapshot,
    decoded_snapshot,
    encoded_snapshot,
)
from posthouse.broker.groups.topic_view import TopicView
from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError
from posthouse.model.excerpts import excerpt
from posthouse.model.ids import GroupId
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

_COMMIT_BYTES = 1024 * 1024
"""Members of more groups are stored in several commits."""
_MAX_BYTES = 16 * 1024 * 1024
"""Members of a larger group join again: it would hold up the commits of all others. With KIP-848 a partition
takes 68 bytes, so it has about 200,000 of them."""


class GroupHandover:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        registry: Registry,
        rules: GroupRules,
        clock: Clock,
        topics_now: Callable[[], TopicView],
    ) -> None:
        self._storage = storage
        self._registry = registry
        self._rules = rules
        self._clock = clock
        self._topics_now = topics_now

    async def leave(self, groups: Iterable[GroupId]) -> None:
        """Store the members of groups that this broker serves no more. Raises Unavailable."""
        puts: list[Put] = []
        size = 0
        for put in self._puts(groups):
            puts.append(put)
            size += len(put.value or b"")
            if size >= _COMMIT_BYTES:
                await self._storage.commit(puts)
                puts, size = [], 0
            else:
                await asyncio.sleep(0)
        if puts:
            await self._storage.commit(puts)

    def _puts(self, groups: Iterable[GroupId]) -> Iterator[Put]:
        now = self._clock.now_ms()
        for group_id in groups:
            snapshot = _snapshot(self._registry.get(group_id))
            if snapshot is None:
                continue
            value = encoded_snapshot(StoredSnapshot(stored_ms=now, group=snapshot))
            if len(value) > _MAX_BYTES:
                log.warning(
                    "group %r: its %d members join again, because they are too large to be handed over",
                    *(excerpt(group_id), len(snapshot.members)),
                )
                continue
            yield Put(Space.GROUP_MEMBERS, group_id.encode(), value)

    async def taken(self, stored: Mapping[bytes, bytes]) -> dict[GroupId, Snapshot]:
        """Remove what another broker has stored in `Space.GROUP_MEMBERS`; the groups of it that go on. Raises
        Unavailable."""
        if not stored:
            return {}
        await self._storage.commit([Put(Space.GROUP_MEMBERS, key, None) for key in stored])
        now = self._clock.now_ms()
        found: dict[GroupId, Snapshot] = {}
        for key, value in stored.items():
            group_id = GroupId(key.decode())
            try:
                each = decoded_snapshot(value)
            except PosthouseError as damage:
                log.error("group %r: its members join again: %s", excerpt(group_id), damage)
                continue
            # Sessions go on while no broker serves the group.
            if now - each.stored_ms <= each.group.session_seconds * 1000:
                found[group_id] = each.group
            await asyncio.sleep(0)
        return found

    def discard(self, stored: Mapping[bytes, bytes]) -> None:
        """In a broker that is alone, with data from a cluster."""
        removals = [Put(Space.GROUP_MEMBERS, key, None) for key in stored]
        self._registry.store_soon([GroupId(key.decode()) for key in stored], removals)

    def resume(self, groups: Mapping[GroupId, Snapshot]) -> None:
        """In the turn of the event loop in which the groups are loaded."""
        for group_id, snapshot in groups.items():
            try:
                group = self._resumed(group_id, snapshot)
            except PosthouseError as damage:
                log.error("group %r: its members join again: %s", excerpt(group_id), damage)
                continue
            self._registry.put(group_id, group)
            self._registry.touched(group_id)

    def _resumed(self, group_id: GroupId, snapshot: Snapshot) -> Group:
        now = self._clock.monotonic()
        if isinstance(snapshot, ClassicSnapshot):
            return resumed_classic(snapshot, self._rules.classic, now)
        return resumed_consumer(snapshot, self._rules.consumer(group_id), self._topics_now(), now)


def _snapshot(group: Group | None) -> Snapshot | None:
    if isinstance(group, ClassicGroup):
        return classic_snapshot(group)
    return consumer_snapshot(group) if isinstance(group, ConsumerGroup) else None
