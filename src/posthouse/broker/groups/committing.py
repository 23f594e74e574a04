"""Commit, read and delete a group's offsets: permission checks and durability."""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from posthouse.broker.groups.consumer import ConsumerGroup
from posthouse.broker.groups.membership import NO_GENERATION, MemberIdentity
from posthouse.broker.groups.offset_reading import OffsetReading
from posthouse.broker.groups.offsets import CommittedOffset, Offsets, group_of, topic_of
from posthouse.broker.groups.registry import Registry
from posthouse.broker.groups.streams import StreamsGroup
from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.protocol_members import ProtocolMembers
from posthouse.model.clock import Clock
from posthouse.model.errors import (
    IllegalGeneration,
    MembershipError,
    OffsetMetadataTooLarge,
    PosthouseError,
    UnknownGroup,
    UnknownPartition,
    UnstableOffset,
)
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.records.batch import NO_LEADER_EPOCH
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.outcomes import Outcome
from posthouse.storage.spaces import Space

_WITHOUT_OFFSETS_MS = 600_000
"""How long a group without members and offsets stays listed."""

_GROUPS_PER_TURN = 500
"""Groups per iteration of the event loop."""


_OFFSETS_PER_TURN = 1000
"""Offsets that become operations in one iteration of the event loop: about 3 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOffset:
    partition: PartitionId
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


FollowMoves = Callable[[GroupId, Sequence[NewOffset]], Callable[[], None]]
"""What is returned is called if the offsets could not be stored."""


class GroupOffsets:
    def __init__(
        self,
        storage: Storage,
        registry: Registry,
        settings: Settings,
        clock: Clock,
        held: HeldScopes,
        *,
        unstable: Callable[[GroupId, PartitionId], bool],
        share_groups: Container[GroupId],
        protocol_members: ProtocolMembers,
    ) -> None:
        """`unstable` tells whether an open transaction is about to change the offset."""
        self._storage = storage
        self._held = held
        self._registry = registry
        self._clock = clock
        self._metadata_bytes = settings.offset_metadata_bytes
        self._retention_ms = settings.offsets_retention_minutes * 60_000
        self._offsets = Offsets()
        self._last_commit: asyncio.Future[list[Outcome]] | None = None
        self._in_flight: dict[GroupId, asyncio.Future[list[Outcome]]] = {}
        """The last commit of each group that has one under way."""
        self._follow_moves: list[FollowMoves] = []
        self.unstable = unstable
        self._share_groups = share_groups
        self._protocol_members = protocol_members
        shared = storage.shared_state
        self.reading = None if shared is None else OffsetReading(shared, self._offsets, held)
        """None where all that is stored is in memory, too: in a broker that is alone."""

    def load(self, state: dict[bytes, bytes]) -> None:
        """`state` is of `Space.OFFSETS`."""
        leftovers = self._offsets.load(state, self._storage.topics.keys())
        if leftovers:
            self._store(leftovers)

    def unload(self, groups: Sequence[GroupId]) -> None:
        """Another broker coordinates these groups from now on."""
        self._offsets.forget(groups)
        if self.reading is not None:
            self.reading.forget(groups)

    def has(self, group: GroupId) -> bool:
        return group in self._offsets

    def groups(self) -> list[GroupId]:
        return list(self._offsets)

    def is_read(self, partition: PartitionId) -> bool:
        """Whether any group has an offset in the partition."""
        return self._offsets.is_read(partition)

    def follow_moves(self, moved: FollowMoves) -> None:
        """`moved` is called when offsets are on their way to storage that no member commits: the group is
        reset. For protocols that keep the members of their groups themselves, and have to tell them."""
        self._follow_moves.append(moved)

    def commit(
        self,
        group: GroupId,
        identity: MemberIdentity,
        offsets: Sequence[NewOffset],
        *,
        is_progress: bool = False,
    ) -> "asyncio.Future[list[PosthouseError | None]]":
        """Commit all valid offsets together. One result for each: None, or the error. `is_progress` says that
        a consumer has come so far which is a member only for its protocol.

        Raises if the member may not commit at all.
        """
        self.check_member(group, identity)
        results = [self.wrong_with(offset, group, identity) for offset in offsets]
        valid = [offset for offset, wrong in zip(offsets, results, strict=True) if wrong is None]
        done: asyncio.Future[list[PosthouseError | None]] = asyncio.get_running_loop().create_future()
        if not valid:
            done.set_result(results)
            return done
        is_move = not is_progress and not identity.member and identity.generation == NO_GENERATION

        def finish(committed: "asyncio.Future[list[Outcome]]") -> None:
            error = committed.exception()
            if done.cancelled():
                return
            if error is None:
                done.set_result(results)
            else:
                done.set_exception(error)

        self._store_of(group, self.puts(group, valid), valid if is_move else ()).add_done_callback(finish)
        return done

    async def commit_in_turns(
        self, group: GroupId, identity: MemberIdentity, offsets: Sequence[NewOffset]
    ) -> None:
        """Commit very many offsets together, without blocking the event loop: other work runs while the
        operations are made. Raises the first error, and then commits nothing."""
        with self._held.used(group):
            self.check_member(group, identity)
            puts: list[Put] = []
            for first in range(0, len(offsets), _OFFSETS_PER_TURN):
                some = offsets[first : first + _OFFSETS_PER_TURN]
                for offset in some:
                    if (wrong := self.wrong_with(offset, group, identity)) is not None:
                        raise wrong
                puts += self.puts(group, some)
                await asyncio.sleep(0)
            # Members may have joined meanwhile, and topics may be gone.
            self.check_member(group, identity)
            for topic in {offset.partition.topic for offset in offsets}:
                if topic not in self._storage.topics:
                    raise UnknownPartition(f"the topic {topic.hex()} was deleted meanwhile")
            if puts:
                await self._store_of(group, puts, offsets if not identity.member else ())

    def _store_of(
        self, group: GroupId, puts: list[Put], moved: Sequence[NewOffset]
    ) -> "asyncio.Future[list[Outcome]]":
        def ended(stored: "asyncio.Future[list[Outcome]]") -> None:
            if self._in_flight.get(group) is stored:
                del self._in_flight[group]
            if stored.cancelled() or stored.exception() is not None:
                for each in undo:
                    each()

        stored = self._in_flight[group] = self._store(puts)
        undo = [follow(group, moved) for follow in self._follow_moves] if moved else []
        stored.add_done_callback(ended)
        return stored

    def are_in_flight(self, group: GroupId) -> bool:
        """Whether members have committed offsets that are not durable yet."""
        return group in self._in_flight

    async def landed(self, group: GroupId) -> None:
        """Wait for the commits that are under way now. A member that takes over a partition must see what the
        member before it was allowed to commit, even if storage takes longer than the rebalance: otherwise it
        begins too early, and its commits go back."""
        if (last := self._in_flight.get(group)) is not None:
            await asyncio.wait([last])

    def check_member(
        self, group_id: GroupId, identity: MemberIdentity, *, transactional: bool = False
    ) -> None:
        """Raises unless this member, or a client without membership, may commit offsets of the group."""
        self.check_kind(group_id)
        group = self._registry.get(group_id)
        if group is not None:
            group.check_commit(identity, self._clock.monotonic(), transactional=transactional)
        elif identity.generation != NO_GENERATION:
            raise IllegalGeneration("the group has no members")

    def check_kind(self, group_id: GroupId) -> None:
        """Raises unless the group is coordinated here, and is no share group."""
        if not self._held.has_all:
            self._held.check(group_id)
        if self.is_share_group(group_id):
            raise UnknownGroup(f"the group {group_id!r} is a share group")

    def is_share_group(self, group_id: GroupId) -> bool:
        """Whether the group is a share group, which has no offsets."""
        return group_id in self._share_groups

    def puts(self, group: GroupId, offsets: Sequence[NewOffset]) -> list[Put]:
        """The operations that store these offsets, for a commit with other operations.

        The caller must pass them to `apply` once they are durable.
        """
        now = self._clock.now_ms()
        return self._offsets.puts(
            group,
            {
                each.partition: CommittedOffset(
                    offset=each.offset,
                    leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    committed_ms=now,
                )
                for each in offsets
            },
        )

    def apply(self, puts: Sequence[Put]) -> None:
        """Apply durable offsets. Offsets of a topic that was deleted meanwhile are dropped."""
        topics = self._storage.topics
        self._offsets.apply([put for put in puts if put.value is None or topic_of(put.key) in topics])
        if self.reading is not None:
            self.reading.applied(puts)

    def apply_transaction(self, puts: Sequence[Put]) -> None:
        """As `apply`, for offsets that a transaction has committed. Some may be of groups that another broker
        coordinates, which reads them from storage."""
        if not self._held.has_all:
            puts = [put for put in puts if self._held.serves(group_of(put.key))]
        self.apply(puts)

    def get(self, group: GroupId, partition: PartitionId, *, stable: bool = False) -> CommittedOffset | None:
        """The committed offset. With `stable`, raises UnstableOffset if an open transaction may still change
        it."""
        if stable and self.unstable(group, partition):
            raise UnstableOffset(f"a transaction may commit an offset for {partition}")
        return self._offsets.get(group, partition)

    def partitions(self, group: GroupId) -> list[PartitionId]:
        """The partitions with a committed offset."""
        return self._offsets.partitions(group)

    async def stored(self, group_id: GroupId) -> Offsets:
        """The offsets of a group, whichever broker coordinates it. Raises Unavailable."""
        return self._offsets if self.reading is None else await self.reading.stored(group_id)

    async def refresh(self, group_id: GroupId) -> None:
        """Bring the offsets of a group in memory up to date, if another broker may have changed them."""
        if self.reading is not None:
            await self.reading.read([group_id])

    async def follow(self) -> None:
        """The same for all groups, as far as transactions may have changed them."""
        if self.reading is not None:
            await self.reading.follow()

    async def remove(self, group_id: GroupId, partitions: Sequence[PartitionId]) -> None:
        if partitions:
            await self._store(self._offsets.removals(group_id, partitions))

    async def forget_group(self, group_id: GroupId) -> None:
        """Delete the group and all of its stored state."""
        await self._settle()
        await self.refresh(group_id)
        puts = self._offsets.removals(group_id, self._offsets.partitions(group_id))
        puts += self._registry.forget(group_id)
        if puts:
            await self._store(puts)

    async def forget_topics(self, topics: Iterable[TopicId]) -> None:
        await self._settle()
        gone = list(topics)
        for count, group in enumerate(list(self._offsets)):
            partitions = [partition for topic in gone for partition in self._offsets.of_topic(group, topic)]
            if partitions and self._held.serves(group):
                self._store(self._offsets.removals(group, partitions))
            if count % _GROUPS_PER_TURN == _GROUPS_PER_TURN - 1:
                await asyncio.sleep(0)
        await self._settle()

    async def expire(self) -> None:
        """Delete groups that have had no members and no commits for the retention time."""
        await self.follow()
        now = self._clock.now_ms()
        known = [group_id for group_id, group in self._registry if group.is_empty]
        for count, group_id in enumerate(dict.fromkeys([*self._offsets, *known])):
            if self._has_expired(group_id, now) and self._held.serves(group_id):
                with self._held.used(group_id):
                    await self.refresh(group_id)  # what deletes offsets looks twice
                    if self._has_expired(group_id, now):
                        await self.forget_group(group_id)
            if count % _GROUPS_PER_TURN == _GROUPS_PER_TURN - 1:
                await asyncio.sleep(0)

    def _has_expired(self, group_id: GroupId, now: int) -> bool:
        group = self._registry.get(group_id)
        if group is not None and not group.is_empty:
            return False
        if self._protocol_members.committing(group_id):
            return False
        last_use = max(self._registry.empty_since(group_id) or 0, self._offsets.last_commit_ms(group_id))
        return now - last_use >= (self._retention_ms if self.has(group_id) else _WITHOUT_OFFSETS_MS)

    def wrong_with(
        self, new: NewOffset, group_id: GroupId, identity: MemberIdentity
    ) -> PosthouseError | None:
        """Why the member cannot commit this offset; None if it can."""
        topic = self._storage.topics.get(new.partition.topic)
        if topic is None or not 0 <= new.partition.index < topic.partitions:
            return UnknownPartition(f"there is no partition {new.partition}")
        if len(new.metadata.encode()) > self._metadata_bytes:
            return OffsetMetadataTooLarge(f"offset metadata may have at most {self._metadata_bytes} bytes")
        group = self._registry.get(group_id)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            try:
                group.check_commit_of(identity, topic.name, new.partition)
            except MembershipError as error:
                return error
        return None

    def _store(self, puts: list[Put]) -> "asyncio.Future[list[Outcome]]":
        def finish(done: "asyncio.Future[list[Outcome]]") -> None:
            if not done.cancelled() and done.exception() is None:
                self.apply([put for put in puts if put.space is Space.OFFSETS])

        self._last_commit = self._storage.commit(puts)
        self._last_commit.add_done_callback(finish)
        return self._last_commit

    async def _settle(self) -> None:
        """Wait for pending commits: their offsets must be visible before they can be removed."""
        if self._last_commit is not None:
            await asyncio.wait([self._last_commit])
