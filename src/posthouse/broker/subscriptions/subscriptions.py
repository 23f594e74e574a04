"""The subscriptions of a broker: records of partitions, leased to members and settled one by one.

A subscription has the name of a group. Its members are ids that a protocol chooses, and are known only while
they hold leases: membership is managed by the protocol. Subscriptions and their progress are stored; leases
are not.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from posthouse.broker.funnel.group_limiters import GroupLimiters
from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.protocol_members import ProtocolMembers
from posthouse.broker.subscriptions.dead_letters import DeadLetters
from posthouse.broker.subscriptions.fetching import Fetching, WaitForRecords
from posthouse.broker.subscriptions.leases import Acknowledgement, Verdict, rejections
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.broker.subscriptions.partitions import SubscribedPartitions
from posthouse.broker.subscriptions.rules import RulesOf
from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.broker.traffic import Traffic
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.clock import Clock
from posthouse.model.errors import NotLeased, PosthouseError, UnknownPartition
from posthouse.model.ids import GroupId, MemberId, PartitionId, TopicId
from posthouse.model.scopes import Scope, scope_of_group
from posthouse.storage.contract import Storage
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

_COPY_SECONDS = 60.0
"""How long copying dead letters may take. A lease that ended meanwhile would leave a message that is dead and
alive."""
_CHECK_SECONDS = 0.1
"""Interval of the check for expired leases."""
_BURY_AGAIN_SECONDS = 10.0
"""Between attempts to make records dead letters."""


class Subscriptions:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        rules: RulesOf,
        wait_for_records: WaitForRecords,
        traffic: Traffic,
        held: HeldScopes,
        members: ProtocolMembers,
        dead_letters: DeadLetters,
        limiters: GroupLimiters,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self.held = held
        """Which groups are served here, for the protocols that have the members."""
        held.when_released(self._released)
        self.members = members
        self._rules = rules
        self._partitions = SubscribedPartitions(storage, clock, rules, held)
        self._dead_letters = dead_letters
        self._fetching = Fetching(
            storage,
            clock,
            self._partitions,
            rules,
            wait_for_records,
            self._leased,
            self._bury,
            self.give_back,
            traffic,
            limiters,
        )
        self._leasing: dict[SubscribedPartition, tuple[GroupId, PartitionId]] = {}
        self._opening: set[asyncio.Task[object]] = set()
        self._timer = Housekeeping([self.tick], _CHECK_SECONDS)
        self._when_deleted: list[Callable[[GroupId], None]] = []
        self.is_closed = True
        """No leases: before `start`, and while the broker stops. Acknowledgements are still accepted then,
        and no member counts as lost."""

    def start(self) -> None:
        """Groups are loaded, or will be."""
        self.is_closed = False
        self._timer.start()

    def load_all(self) -> None:
        """In a broker that is alone."""
        self._partitions.load_all()

    async def load(self, scope: Scope, shared: SharedState) -> None:
        """The subscriptions of a scope that this broker has taken. Raises Unavailable."""
        await self._partitions.load(scope, shared)

    def _released(self, scope: Scope) -> None:
        """Fetches of the scope's groups end: their groups are not served any more."""
        for group in self._of(scope):
            self._fetching.end_waits(group)

    async def unload(self, scope: Scope) -> None:
        """After the scope was released: wait for work on its subscriptions, store their progress, and forget
        them and their leases."""
        await self.held.unused(scope)
        groups = self._of(scope)
        self._leasing = {
            subscribed: (group, partition)
            for subscribed, (group, partition) in self._leasing.items()
            if scope_of_group(group) != scope
        }
        for group in groups:
            self._fetching.forget(group)
        await self._partitions.unload(groups)

    def _of(self, scope: Scope) -> list[GroupId]:
        return [group for group in self if scope_of_group(group) == scope]

    def stop_leasing(self) -> None:
        """Fetches that wait end, also those only about to wait."""
        self.is_closed = True
        for group in self:
            self._fetching.end_waits(group)

    async def close(self) -> None:
        self.stop_leasing()
        await self._timer.stop()
        for opening in self._opening:
            opening.cancel()
        await self._partitions.close()

    def __contains__(self, group: object) -> bool:
        return group in self._partitions

    def __iter__(self) -> Iterator[GroupId]:
        return iter(self._partitions.groups())

    def is_read(self, partition: PartitionId) -> bool:
        """Whether any subscription has progress in the partition."""
        return any(self._partitions.find(group, partition) is not None for group in self)

    async def exists(self, group: GroupId) -> bool:
        """Whether there is such a subscription, here or at the broker that holds its scope. Raises
        Unavailable."""
        if group in self._partitions:
            return True
        shared = self._storage.shared_state
        return shared is not None and bool(await shared.of_owners(Space.SHARE_GROUPS, [group.encode()]))

    async def create(self, group: GroupId) -> None:
        """Create a subscription: in memory at once, stored on return. No-op if it exists."""
        with self.held.used(group):
            if group not in self._partitions:
                await self._partitions.add_group(group)

    def open(self, group: GroupId, partitions: Iterable[PartitionId]) -> None:
        """Open partitions now: they begin at their present end, not at that of the first fetch."""
        known = self._partitions.of(group)
        for partition in partitions:
            if partition not in known:
                opening: asyncio.Task[object] = asyncio.create_task(self._opened(group, partition))
                self._opening.add(opening)
                opening.add_done_callback(self._opening.discard)

    async def _opened(self, group: GroupId, partition: PartitionId) -> None:
        try:
            await self._partitions.opened(group, partition)
        except PosthouseError:
            return  # the fetch that needs it retries, and raises

    # Leases

    async def fetch(
        self,
        group: GroupId,
        member: MemberId,
        wanted: Sequence[PartitionId],
        wish: Wish,
        is_live: Callable[[], bool],
    ) -> dict[PartitionId, Taken | PosthouseError]:
        """Lease records to the member. Only partitions with records or an error are in the result.

        `is_live` tells whether the member can still be answered when records have been found.
        """
        with self.held.used(group):
            return await self._fetching.fetch(
                group,
                member,
                wanted,
                wish,
                lambda: not self.is_closed and self.held.serves(group) and is_live(),
            )

    async def acknowledge(
        self,
        group: GroupId,
        member: MemberId,
        said: Mapping[PartitionId, Sequence[Acknowledgement]],
    ) -> dict[PartitionId, PosthouseError | None]:
        """Settle, release or extend leases. All valid acknowledgements are stored on return.

        For each partition None, or the error.
        """
        with self.held.used(group):
            return await self._acknowledge(group, member, said)

    async def _acknowledge(
        self, group: GroupId, member: MemberId, said: Mapping[PartitionId, Sequence[Acknowledgement]]
    ) -> dict[PartitionId, PosthouseError | None]:
        rules = self._rules(group)
        now = self._clock.monotonic()
        results: dict[PartitionId, PosthouseError | None] = {}
        settled: dict[PartitionId, SubscribedPartition] = {}
        for partition, acknowledgements in said.items():
            subscribed = self._partitions.find(group, partition)
            try:
                if subscribed is None:
                    raise UnknownPartition(f"the group {group!r} reads nothing from {partition}")
                if not rules.may_renew and any(Verdict.RENEW in each.verdicts for each in acknowledgements):
                    raise NotLeased(f"in the group {group!r} records cannot be held for longer")
                subscribed.trim(self._storage.bounds(partition).start)
                if subscribed.expire(now, rules.terms):
                    self._came_back(group, partition, subscribed)
                if rules.dead_letters is not None and (
                    rejected := rejections(subscribed.check_held(member, acknowledgements))
                ):
                    subscribed.prolong(member, rejected, now + _COPY_SECONDS)
                    await self._dead_letters.copy(group, partition, rejected, rules.dead_letters)
                    now = self._clock.monotonic()
                    if self._partitions.find(group, partition) is not subscribed:
                        # Its progress must not be stored over that of its successor.
                        raise NotLeased(f"the group {group!r} was moved in {partition}, or has given it up")
                subscribed.acknowledge(member, acknowledgements, now, rules.terms)
                results[partition] = None
                settled[partition] = subscribed
            except PosthouseError as error:
                results[partition] = error
        if settled:
            self._fetching.became_ready(group)
            try:
                await self._partitions.store(settled.values())
            except PosthouseError as error:
                results |= dict.fromkeys(settled, error)
        return results

    async def _bury(
        self, group: GroupId, member: MemberId, partition: PartitionId, offsets: Sequence[int]
    ) -> None:
        """Make records that were delivered too often dead letters. If that fails they stay leased for some
        seconds, and a later fetch finds them again."""
        said = [Acknowledgement(offset, offset, [Verdict.REJECT]) for offset in offsets]
        wrong = (await self._acknowledge(group, member, {partition: said}))[partition]
        if wrong is None:
            return
        log.error(
            "group %s: %d records of %s were delivered too often and cannot be made dead letters; that is "
            "tried again after %d s: %s",
            group,
            len(offsets),
            partition,
            _BURY_AGAIN_SECONDS,
            wrong,
        )
        subscribed = self._partitions.find(group, partition)
        if subscribed is not None:
            # Ready at once, they would be leased again at once.
            subscribed.hold(member, offsets, self._clock.monotonic() + _BURY_AGAIN_SECONDS)

    def has_progress(self, group: GroupId, partitions: Iterable[PartitionId]) -> bool:
        """Whether the group has begun to read all of them."""
        return all(self._partitions.find(group, partition) is not None for partition in partitions)

    def find(self, group: GroupId, partition: PartitionId) -> SubscribedPartition | None:
        return self._partitions.find(group, partition)

    def give_back(
        self, group: GroupId, member: MemberId, leased: Mapping[PartitionId, Iterable[int]]
    ) -> None:
        """The member never got these records: they are ready as if they had not been leased. Those that it
        does not hold any more are left alone."""
        terms = self._rules(group).terms
        for partition, offsets in leased.items():
            subscribed = self._partitions.find(group, partition)
            if subscribed is not None and subscribed.give_back(member, offsets, terms):
                self._came_back(group, partition, subscribed)

    def selection_changed(self, group: GroupId) -> None:
        """Members with selections have come or gone: what nobody wanted is looked at again."""
        if group in self._partitions:
            for subscribed in self._partitions.of(group).values():
                subscribed.forget_unwanted()
            self._fetching.became_ready(group)

    def release(
        self,
        group: GroupId,
        member: MemberId,
        partitions: Collection[PartitionId] | None = None,
        *,
        count: bool | None,
    ) -> None:
        """Release the leases of the member, in these partitions or in all. Without `count`, they do not count
        as deliveries; None: as when they expire."""
        terms = self._rules(group).terms
        for subscribed, (owner, partition) in self._leasing.items():
            if owner != group or (partitions is not None and partition not in partitions):
                continue
            if subscribed.take_back(member, terms, count=count):
                self._came_back(group, partition, subscribed)

    def end_long_leases(self, group: GroupId, member: MemberId, seconds: float) -> None:
        """The member's connection has ended. What it was leased for as long as it is connected comes back
        after these seconds, unless it acknowledges that."""
        deadline = self._clock.monotonic() + seconds
        for subscribed, (owner, _) in self._leasing.items():
            if owner == group:
                subscribed.end_long_leases(member, deadline)

    async def tick(self) -> None:
        """Release expired leases."""
        if self.is_closed:
            return
        now = self._clock.monotonic()
        for subscribed, (group, partition) in list(self._leasing.items()):
            if not subscribed.leased:
                del self._leasing[subscribed]
            elif subscribed.expire(now, self._rules(group).terms):
                self._came_back(group, partition, subscribed)

    def _leased(self, group: GroupId, partition: PartitionId, subscribed: SubscribedPartition) -> None:
        self._leasing[subscribed] = (group, partition)

    def _came_back(self, group: GroupId, partition: PartitionId, subscribed: SubscribedPartition) -> None:
        self._partitions.changed(group, partition, subscribed)
        self._fetching.became_ready(group)

    # Progress

    def progress(self, group: GroupId) -> Mapping[PartitionId, SubscribedPartition]:
        """Every partition with progress; none for a subscription that does not exist. Raises
        NotCoordinator."""
        self.held.check(group)
        if group not in self._partitions:
            return {}
        found: dict[PartitionId, SubscribedPartition] = {}
        for partition, subscribed in self._partitions.of(group).items():
            try:
                subscribed.trim(self._storage.bounds(partition).start)
            except UnknownPartition:
                continue  # its topic has just been deleted; `forget_topics` follows
            found[partition] = subscribed
        return found

    async def reset(self, group: GroupId, offsets: Mapping[PartitionId, int]) -> None:
        """`move` for operators. A subscription that does not exist is created. Raises GroupNotEmpty if it has
        members that would not follow."""
        self.members.check_resettable(group)
        await self.create(group)
        self.members.check_resettable(group)  # one may have joined meanwhile
        await self.move(group, offsets)

    async def move(self, group: GroupId, offsets: Mapping[PartitionId, int]) -> None:
        """Restart at these offsets; settled state and leases are dropped: later acknowledgements of what was
        leased before are refused."""
        # It goes on if the caller is cancelled: what is stored and what is in memory must be the same.
        await undisturbed(asyncio.create_task(self._move(group, offsets)))

    async def _move(self, group: GroupId, offsets: Mapping[PartitionId, int]) -> None:
        with self.held.used(group):
            await self._partitions.move(group, offsets)
            for subscribed in [each for each, (owner, _) in self._leasing.items() if owner == group]:
                if subscribed.is_closed:
                    del self._leasing[subscribed]
            self._fetching.became_ready(group)

    async def forget_topic(self, group: GroupId, topic: TopicId) -> bool:
        """Remove the progress in a topic, so that it begins anew. False if there is none."""
        with self.held.used(group):
            return await self._partitions.forget_topic(group, topic)

    async def forget_topics(self, topics: Sequence[TopicId]) -> None:
        for group in self:
            if not self.held.serves(group):
                continue  # the broker that takes it removes what is left
            with self.held.used(group):
                for topic in topics:
                    await self._partitions.forget_topic(group, topic)
            self._fetching.became_ready(group)

    def when_deleted(self, deleted: Callable[[GroupId], None]) -> None:
        """For protocols that keep something of the group besides its members."""
        self._when_deleted.append(deleted)

    async def delete(self, group: GroupId) -> None:
        """Raises GroupNotEmpty."""
        with self.held.used(group):
            self.members.check_none(group)
            for each in self._when_deleted:
                each(group)
            self._fetching.forget(group)
            await self._partitions.forget_group(group)
