"""One fetch of a member: find records, lease them, or wait for some.

Records are leased in one step at the very end: a fetch that waits for more holds no leases.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from posthouse.broker.funnel.group_limiters import GroupLimiters
from posthouse.broker.subscriptions.batches import Aborted, Found, aborted_in, found_in, nothing_aborted
from posthouse.broker.subscriptions.leases import LeasedRun
from posthouse.broker.subscriptions.partition import Look, SubscribedPartition
from posthouse.broker.subscriptions.partitions import SubscribedPartitions
from posthouse.broker.subscriptions.rules import RulesOf, SubscriptionRules
from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.broker.traffic import Traffic
from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError, UnknownPartition
from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.storage.contract import Storage

_SCATTERED_BYTES = 64 * 1024
"""Bytes per read if most records were delivered before, and few were released."""


def _in_runs(runs: Iterable[LeasedRun]) -> list[int]:
    return [offset for run in runs for offset in range(run.first, run.last + 1)]


Bury: TypeAlias = Callable[[GroupId, MemberId, PartitionId, Sequence[int]], Awaitable[None]]
"""Makes leased records dead letters."""
GiveBack: TypeAlias = Callable[[GroupId, MemberId, Mapping[PartitionId, Iterable[int]]], None]
"""See `Subscriptions.give_back`."""


class WaitForRecords(Protocol):
    def __call__(
        self,
        partitions: Iterable[tuple[PartitionId, int]],
        missing: int,
        seconds: float,
        *,
        stable_only: bool = False,
    ) -> Awaitable[None]: ...


@dataclass(slots=True)
class _Harvest:
    """The records found in one pass over the partitions."""

    wish: Wish
    size: int = 0
    records: int = 0
    found: dict[PartitionId, tuple[SubscribedPartition, list[Found]]] = field(default_factory=dict)
    ends: list[tuple[PartitionId, int]] = field(default_factory=list)
    goes_on: bool = False
    """There is more to look at, behind what the selection does not want."""
    errors: dict[PartitionId, PosthouseError] = field(default_factory=dict)

    @property
    def room(self) -> int:
        return self.wish.max_bytes - self.size

    @property
    def is_full(self) -> bool:
        return self.records >= self.wish.max_records or (self.room <= 0 < self.records)

    def add(self, partition: PartitionId, subscribed: SubscribedPartition, found: Found, most: int) -> int:
        """Add found records; returns their number."""
        if self.wish.is_strict:
            most = min(most, self.wish.max_records - self.records)
        del found.offsets[most:]
        self.found.setdefault(partition, (subscribed, []))[1].append(found)
        self.size += len(found.data)
        self.records += len(found.offsets)
        return len(found.offsets)


_LOOK_BYTES = 1024 * 1024
"""Of records in one partition that a selection is asked about at once."""
_LOOK_RECORDS = 4096
"""Of one batch."""


class Fetching:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        partitions: SubscribedPartitions,
        rules: RulesOf,
        wait_for_records: WaitForRecords,
        leased: Callable[[GroupId, PartitionId, SubscribedPartition], None],
        bury: Bury,
        give_back: GiveBack,
        traffic: Traffic,
        limiters: GroupLimiters,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._partitions = partitions
        self._rules = rules
        self._wait_for_records = wait_for_records
        self._leased = leased
        self._bury = bury
        self._give_back = give_back
        self._traffic = traffic
        self._limiters = limiters
        self._changes: defaultdict[GroupId, int] = defaultdict(int)
        self._waiting: defaultdict[GroupId, set[asyncio.Future[None]]] = defaultdict(set)

    def became_ready(self, group: GroupId) -> None:
        """Records were released, or leases are free again: wake waiting fetches."""
        self._changes[group] += 1
        for waiting in self._waiting.get(group, ()):
            if not waiting.done():
                waiting.set_result(None)
        if (limiter := self._limiters.find(group)) is not None:
            limiter.wake()

    def end_waits(self, group: GroupId) -> None:
        """The group is not served here any more: fetches that wait, for records or for room, end."""
        self.became_ready(group)
        if (limiter := self._limiters.find(group)) is not None:
            limiter.wake_all()

    def forget(self, group: GroupId) -> None:
        self.became_ready(group)
        self._limiters.forget(group)
        self._changes.pop(group, None)

    async def fetch(
        self,
        group: GroupId,
        member: MemberId,
        wanted: Sequence[PartitionId],
        wish: Wish,
        is_live: Callable[[], bool],
    ) -> dict[PartitionId, Taken | PosthouseError]:
        """See `Subscriptions.fetch`."""
        try:
            return await self._fetch(group, member, wanted, wish, is_live)
        finally:
            if (limiter := self._limiters.find(group)) is not None:
                limiter.wake()  # what this fetch has left is for the next one

    async def _fetch(
        self,
        group: GroupId,
        member: MemberId,
        wanted: Sequence[PartitionId],
        wished: Wish,
        is_live: Callable[[], bool],
    ) -> dict[PartitionId, Taken | PosthouseError]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wished.seconds
        ticket = self._limiters.ticket()
        while True:
            wish = wished
            if wish.max_bytes > 0 and (limiter := self._limiters.of(group)) is not None:
                in_flight = self._partitions.in_work(group)
                if limiter.must_wait(ticket, in_flight):
                    seconds = deadline - loop.time()
                    if seconds <= 0 or not is_live():
                        return {}
                    await limiter.wait(ticket, seconds)
                    continue
                most = min(wish.max_records, limiter.share(in_flight))
                wish = replace(wish, max_records=most, is_strict=True, min_bytes=1)
            changes = self._changes[group]
            harvest = await self._harvest(group, wanted, wish)
            missing = max(wish.min_bytes, 1) - harvest.size
            seconds = deadline - loop.time()
            if harvest.goes_on and not harvest.records and seconds > 0 and is_live():
                await asyncio.sleep(0)
                continue
            may_wait = missing > 0 and seconds > 0 and harvest.ends and not harvest.errors and is_live()
            if may_wait and (
                changes != self._changes[group] or await self._wait(group, harvest.ends, missing, seconds)
            ):
                continue
            if not is_live():
                return {**harvest.errors}
            taken, dead = self._lease(group, member, harvest)
            try:
                for partition, offsets in dead.items():
                    await self._bury(group, member, partition, offsets)
            except BaseException:  # cancelled: nobody will say what became of these records
                self._give_back(group, member, _offsets(taken))
                self._give_back(group, member, dead)
                raise
            # It has not waited for these: other brokers may write there meanwhile.
            self._storage.watch(partition for partition, _ in harvest.ends)
            # Other members may have leased the records first; then retry while time is left.
            if taken or harvest.errors or not harvest.found or loop.time() >= deadline:
                return taken | harvest.errors

    async def _harvest(self, group: GroupId, wanted: Sequence[PartitionId], wish: Wish) -> _Harvest:
        harvest = _Harvest(wish)
        if wish.selection is not None:
            wish.selection.begin()
        rules = self._rules(group)
        for partition in wanted:
            if harvest.is_full:
                break
            try:
                await self._search(group, partition, rules, harvest)
            except PosthouseError as error:
                harvest.errors[partition] = error
        return harvest

    async def _search(
        self, group: GroupId, partition: PartitionId, rules: SubscriptionRules, harvest: _Harvest
    ) -> None:
        subscribed = await self._partitions.opened(group, partition)
        if subscribed.expire(self._clock.monotonic(), rules.terms):
            self.became_ready(group)
        with subscribed.look() as look:
            await self._look(group, partition, subscribed, rules, harvest, look)

    async def _look(
        self,
        group: GroupId,
        partition: PartitionId,
        subscribed: SubscribedPartition,
        rules: SubscriptionRules,
        harvest: _Harvest,
        look: Look,
    ) -> None:
        stable_only = rules.stable_only
        leases_left = rules.terms.max_leases - subscribed.leased
        selection = harvest.wish.selection
        offset = looked_to = 0 if selection is None else subscribed.unwanted_below(selection.name)
        is_looking = selection is not None
        looked_at = 0
        while True:
            bounds = self._storage.bounds(partition)
            subscribed.trim(bounds.start)
            end = bounds.stable if stable_only else bounds.end
            offset = subscribed.next_ready(offset)
            if offset >= end or harvest.is_full or leases_left <= 0:
                break
            scattered = offset < subscribed.progress.handed_out_to
            slice_ = await self._storage.read(
                partition,
                offset,
                max(min(harvest.room, _SCATTERED_BYTES) if scattered else harvest.room, 0),
                at_least_one=not harvest.records and harvest.wish.max_bytes > 0,
                stable_only=stable_only,
            )
            is_aborted: Aborted = nothing_aborted
            if stable_only:
                is_aborted = aborted_in(slice_.aborted)
            before = offset
            most = leases_left if selection is None else _LOOK_RECORDS
            for following, found in found_in(subscribed, slice_.data, offset, is_aborted, most):
                offset = following
                is_cut = False
                if found is not None and selection is not None:
                    if len(found.offsets) == most:  # the batch may have more
                        offset = found.offsets[-1] + 1
                        is_cut = offset < following
                    looked_at += len(found.data)
                    selected = selection.select(partition, subscribed, found)
                    for unwanted in selected.unwanted:
                        subscribed.pass_over(unwanted, unwanted + 1)
                    if is_looking and selected.first_wanted is not None:
                        is_looking, looked_to = False, selected.first_wanted
                    found.offsets = selected.offsets
                if is_looking:
                    looked_to = offset
                if found is not None and found.offsets:
                    leases_left -= harvest.add(partition, subscribed, found, leases_left)
                if is_cut or harvest.is_full or leases_left <= 0 or looked_at >= _LOOK_BYTES:
                    break
            if offset == before or looked_at >= _LOOK_BYTES:
                break
        if selection is not None and looked_to > subscribed.unwanted_below(selection.name):
            subscribed.saw_unwanted(selection.name, looked_to, look)
            harvest.goes_on = harvest.goes_on or (is_looking and looked_to < end)
        self._partitions.changed(group, partition, subscribed)
        harvest.ends.append((partition, end))

    def _lease(
        self, group: GroupId, member: MemberId, harvest: _Harvest
    ) -> tuple[dict[PartitionId, Taken | PosthouseError], dict[PartitionId, list[int]]]:
        """What the member gets, and what was delivered too often: leased to the member, too."""
        taken: dict[PartitionId, Taken | PosthouseError] = {}
        dead: dict[PartitionId, list[int]] = {}
        now = self._clock.monotonic()
        terms = self._rules(group).terms
        selection = harvest.wish.selection
        limiter = self._limiters.of(group)
        for partition, (subscribed, batches) in harvest.found.items():
            if self._partitions.find(group, partition) is not subscribed:
                continue  # it was moved while storage was read
            offsets = [offset for found in batches for offset in found.offsets]
            if selection is not None:
                offsets = selection.confirm(partition, subscribed, offsets)
            if limiter is not None:  # others may have leased records since
                room = limiter.limiter.room(self._partitions.in_work(group))
                offsets = subscribed.ready(offsets, room)
            runs = subscribed.acquire(
                offsets,
                member,
                now,
                terms,
                harvest.wish.run_size,
                harvest.wish.lock_seconds,
                while_connected=harvest.wish.while_connected,
            )
            if not runs:
                continue
            self._leased(group, partition, subscribed)
            if selection is not None:
                selection.leased(partition, subscribed, _in_runs(runs))
            if terms.has_dead_letters and (
                over := [each for each in runs if each.deliveries > terms.max_deliveries]
            ):
                dead[partition] = _in_runs(over)
                runs = [each for each in runs if each.deliveries <= terms.max_deliveries]
                if not runs:
                    continue
            leased = set(_in_runs(runs))
            if limiter is not None:
                limiter.limiter.took(len(leased))
            if selection is None:
                data = b"".join(found.data for found in batches if not leased.isdisjoint(found.offsets))
                size = len(data)
            else:
                data, size = b"", selection.size(partition, sorted(leased))
            taken[partition] = Taken(data, runs, subscribed.generation)
            if (topic := self._storage.topics.get(partition.topic)) is not None:
                traffic = self._traffic[topic.name]
                traffic.records_out += len(leased)
                traffic.bytes_out += size
        return taken, dead

    async def _wait(
        self, group: GroupId, ends: Sequence[tuple[PartitionId, int]], missing: int, seconds: float
    ) -> bool:
        """Wait; returns whether there may be more records than before."""
        stable_only = self._rules(group).stable_only
        back: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        arrival = asyncio.ensure_future(
            self._wait_for_records(ends, missing, seconds, stable_only=stable_only)
        )
        self._waiting[group].add(back)
        try:
            await asyncio.wait((arrival, back), return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrival.cancel()
            self._waiting[group].discard(back)
            if not self._waiting[group]:
                del self._waiting[group]
        if back.done():
            return True
        try:
            arrival.result()
            return any(self._end(partition, stable_only) != end for partition, end in ends)
        except UnknownPartition:
            return True

    def _end(self, partition: PartitionId, stable_only: bool) -> int:
        bounds = self._storage.bounds(partition)
        return bounds.stable if stable_only else bounds.end


def _offsets(taken: Mapping[PartitionId, Taken | PosthouseError]) -> dict[PartitionId, list[int]]:
    return {
        partition: [offset for run in each.runs for offset in range(run.first, run.last + 1)]
        for partition, each in taken.items()
        if isinstance(each, Taken)
    }
