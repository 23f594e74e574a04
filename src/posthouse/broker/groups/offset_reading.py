"""Offsets of groups as they are stored, in a storage that several brokers share.

The broker that holds a group's scope commits its offsets, with one exception: the coordinator ends
transactions, and commits their offsets with them. So what is in memory may be old, and an answer is read from
storage. Offsets of a transaction that are on their way to the coordinator are not there yet: they are known
here, and make the offsets that they may change unstable.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack

from posthouse.broker.groups.offsets import CommittedOffset, Offsets, group_of, offset_key
from posthouse.broker.held_scopes import HeldScopes
from posthouse.model.errors import UnstableOffset
from posthouse.model.ids import GroupId, PartitionId
from posthouse.storage.operations import Put
from posthouse.storage.shared_state import SharedState, StoredOffsets
from posthouse.storage.spaces import Space

DOUBT_SECONDS = 10.0
"""How long offsets whose sending was not answered may still be stored: then the coordinator that got them has
lost its lease, or has noticed that the connection is gone."""


class ReadOffsets:
    """Offsets of some groups, and which of them transactions may still change."""

    def __init__(self, committed: Offsets, pending: AbstractSet[bytes]) -> None:
        self._committed = committed
        self._pending = pending

    def get(self, group: GroupId, partition: PartitionId, *, stable: bool = False) -> CommittedOffset | None:
        """See `GroupOffsets.get`."""
        if stable and offset_key(group, partition) in self._pending:
            raise UnstableOffset(f"a transaction may commit an offset for {partition}")
        return self._committed.get(group, partition)

    def partitions(self, group: GroupId) -> list[PartitionId]:
        return self._committed.partitions(group)


class OffsetsInFlight:
    """Offsets of a transaction on their way to the coordinator. Their group's scope is not given up
    meanwhile."""

    def __init__(self, resources: ExitStack) -> None:
        self._resources = resources

    def end(self, *, is_answered: bool) -> None:
        """They are stored or refused; without an answer they may be stored for some time longer."""
        if is_answered:
            self._resources.close()
        else:
            asyncio.get_running_loop().call_later(DOUBT_SECONDS, self._resources.close)


class OffsetReading:
    """Owned by the event loop."""

    def __init__(self, shared: SharedState, offsets: Offsets, held: HeldScopes) -> None:
        """`offsets` are those in memory, which it brings up to date."""
        self._shared = shared
        self._offsets = offsets
        self._held = held
        self._in_flight: dict[GroupId, Counter[bytes]] = {}
        self._transactional: set[GroupId] = set()
        """Groups whose offsets in memory may be older than those in storage."""
        self._reads: list[set[bytes]] = []
        """For each read that is under way: keys that were committed here since it began."""

    def loaded(self, stored: StoredOffsets) -> None:
        """The offsets of a scope are in memory now."""
        self._transactional |= {group_of(key) for key in stored.pending}

    def forget(self, groups: Iterable[GroupId]) -> None:
        self._transactional.difference_update(groups)

    def applied(self, puts: Iterable[Put]) -> None:
        """Offsets that this broker has committed are in memory now."""
        if self._reads:
            keys = [put.key for put in puts]
            for changed in self._reads:
                changed.update(keys)

    async def read(self, groups: Sequence[GroupId]) -> ReadOffsets:
        """As they are stored now; memory follows. The scopes are held meanwhile. Raises NotCoordinator."""
        with ExitStack() as stack:
            for group in groups:
                stack.enter_context(self._held.used(group))
            # What is on its way now may be stored, and ended, after the statement has looked.
            in_flight = {key for group in groups for key in self._in_flight.get(group, ())}
            changed: set[bytes] = set()
            self._reads.append(changed)
            try:
                stored = await self._shared.offsets_of_groups([group.encode() for group in groups])
            finally:
                # Not by equality: other reads have equal sets.
                self._reads = [each for each in self._reads if each is not changed]
            committed = Offsets()
            committed.load(dict(stored.committed))
            self._offsets.follow(committed, groups, changed)
            settled = set(groups) - {group_of(key) for key in stored.pending} - self._in_flight.keys()
            self._transactional -= settled
        return ReadOffsets(committed, stored.pending | in_flight)

    async def stored(self, group: GroupId) -> Offsets:
        """Of a group that another broker may coordinate."""
        found = Offsets()
        found.load(await self._shared.of_owners(Space.OFFSETS, [group.encode()]))
        return found

    async def follow(self) -> None:
        """Bring offsets in memory up to date that transactions may have changed. Raises Unavailable."""
        groups = [group for group in self._transactional if self._held.serves(group)]
        if groups:
            await self.read(groups)

    def begin(self, group: GroupId, partitions: Sequence[PartitionId]) -> OffsetsInFlight:
        """Offsets of a transaction are sent to the coordinator. Raises NotCoordinator."""
        resources = ExitStack()
        resources.enter_context(self._held.used(group))
        keys = [offset_key(group, partition) for partition in partitions]
        self._transactional.add(group)
        self._in_flight.setdefault(group, Counter()).update(keys)
        resources.callback(self._arrived, group, keys)
        return OffsetsInFlight(resources)

    def _arrived(self, group: GroupId, keys: Sequence[bytes]) -> None:
        counts = self._in_flight[group]
        counts.subtract(keys)
        self._in_flight[group] = counts = +counts
        if not counts:
            del self._in_flight[group]
