"""One partition of one subscription: which records are ready, leased or settled.

    ready ──acquire──► leased ──accept, reject, gone──► settled
      ▲                  │ │                               ▲
      └──release, expire─┘ └──the last delivery allowed────┘

A position is an offset. Settled positions and delivery counts are in `Progress`, which is stored. Leases are
not stored: after a restart, leased records are ready. A plain object: callers pass the time, and read the
records.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from posthouse.broker.progress.deadlines import Deadlines
from posthouse.broker.progress.positions import LeaseTable
from posthouse.broker.progress.progress import Progress
from posthouse.broker.subscriptions.leases import Acknowledgement, LeasedRun, LeaseTerms, RecordLease, Verdict
from posthouse.model.errors import NotLeased
from posthouse.model.ids import MemberId

_MOST_SELECTIONS = 64
"""Of which is remembered how far they have looked."""
_SPARE_DEADLINES = 64
"""Of leases that have ended, kept besides as many as there are leases."""
_SETTLING = frozenset((Verdict.GONE, Verdict.ACCEPT, Verdict.REJECT))


class Look:
    """One search of a selection among the ready records, which may wait for storage: records that come back
    meanwhile may be behind it."""

    __slots__ = ("back_to",)

    def __init__(self) -> None:
        self.back_to: int | None = None
        """The lowest record that came back."""

    def came_back(self, offset: int) -> None:
        if self.back_to is None or offset < self.back_to:
            self.back_to = offset


class SubscribedPartition:
    """Owned by the event loop."""

    def __init__(self, progress: Progress, generation: int = 0) -> None:
        self.progress = progress
        self.generation = generation
        """Differs from that of every other object for this partition, of this run of the broker or an earlier
        one: a lease from before a reset or a restart is none of this one."""
        self.is_closed = False
        """The group is being moved, or was, and another object takes its place: nothing is leased or settled
        here any more."""
        self.start = 0
        """The known log start: records below it do not exist any more."""
        self._leases: LeaseTable[RecordLease] = LeaseTable(progress)
        self._deadlines: Deadlines[RecordLease] = Deadlines()
        self._ready_from = progress.floor
        """No record below is ready."""
        self._unwanted: dict[Hashable, int] = {}
        """By the name of a selection: below are only ready records that it does not want."""
        self._looks: set[Look] = set()
        self._only_waiting: set[RecordLease] = set()
        """Some may have ended."""

    @property
    def leased(self) -> int:
        return len(self._leases.holders)

    @property
    def in_work(self) -> int:
        """Leased records, without those that only wait until they come again."""
        if self._only_waiting:
            holders = self._leases.holders
            self._only_waiting = {each for each in self._only_waiting if holders.get(each.first) is each}
        return self.leased - len(self._only_waiting)

    @property
    def deadline(self) -> float:
        """When to call `expire` next; it may be too early."""
        return self._deadlines.next

    def holder(self, offset: int) -> MemberId | None:
        lease = self._leases.holders.get(offset)
        return None if lease is None else lease.member

    def next_ready(self, offset: int = 0) -> int:
        """The first offset from `offset` on that is neither settled nor leased; it may not be written yet."""
        is_first = offset <= self._ready_from
        found = self.progress.next_unsettled(max(offset, self._ready_from))
        while found in self._leases.holders:
            found = self.progress.next_unsettled(found + 1)
        if is_first:
            self._ready_from = found
        return found

    def ready(self, offsets: Iterable[int], most: int | None = None) -> list[int]:
        """The first `most` ready offsets: a batch may claim millions of records."""
        leases, progress = self._leases.holders, self.progress
        if not leases and not progress.settled_above:
            floor = progress.floor
            found = (offset for offset in offsets if offset >= floor)
        else:
            found = (offset for offset in offsets if offset not in leases and not progress.is_settled(offset))
        return list(islice(found, most))

    def unwanted_below(self, selection: Hashable) -> int:
        """Below are no ready records that members with the selection want."""
        return self._unwanted.get(selection, 0)

    @contextmanager
    def look(self) -> Iterator[Look]:
        look = Look()
        self._looks.add(look)
        try:
            yield look
        finally:
            self._looks.discard(look)

    def saw_unwanted(self, selection: Hashable, end: int, look: Look) -> None:
        """The look has found nothing wanted below `end`, but for what came back since it began."""
        if look.back_to is not None:
            end = min(end, look.back_to)
        if end <= self.unwanted_below(selection):
            return
        if selection not in self._unwanted and len(self._unwanted) >= _MOST_SELECTIONS:
            del self._unwanted[next(iter(self._unwanted))]
        self._unwanted[selection] = end

    def forget_unwanted(self) -> None:
        """Members have come or gone: what nobody wanted, or others, is looked at again."""
        self._unwanted.clear()
        for look in self._looks:
            look.came_back(0)

    def acquire(
        self,
        offsets: Iterable[int],
        member: MemberId,
        now: float,
        terms: LeaseTerms,
        run_size: int,
        seconds: float | None = None,
        *,
        while_connected: bool = False,
    ) -> list[LeasedRun]:
        """Lease the ready ones of `offsets`, as many as the terms allow, in runs of up to `run_size`; for
        `seconds`, or as the terms say."""
        ready = self.ready(offsets)[: max(terms.max_leases - self.leased, 0)]
        if not ready or self.is_closed:
            return []
        runs = self._runs(ready, run_size)
        deadline = now + (terms.lock_seconds if seconds is None else seconds)
        for run in runs:
            self._lease(run.first, run.last, member, deadline, while_connected=while_connected)
        if runs[-1].last >= self.progress.handed_out_to:
            self.progress.handed_out_to = runs[-1].last + 1
        return runs

    def _runs(self, offsets: Sequence[int], size: int) -> list[LeasedRun]:
        """Runs of adjacent offsets with the same delivery count."""
        runs = []
        first = last = offsets[0]
        deliveries = self.progress.deliveries(first)
        for offset in offsets[1:]:
            count = self.progress.deliveries(offset)
            if offset != last + 1 or count != deliveries or 0 < size <= offset - first:
                runs.append(LeasedRun(first, last, deliveries + 1))
                first, deliveries = offset, count
            last = offset
        runs.append(LeasedRun(first, last, deliveries + 1))
        return runs

    def _lease(
        self,
        first: int,
        last: int,
        member: MemberId,
        deadline: float,
        *,
        while_connected: bool = False,
        counts: bool = True,
        only_waits: bool = False,
    ) -> None:
        lease = RecordLease(member, first, last, while_connected, counts, only_waits)
        if only_waits:
            self._only_waiting.add(lease)
        self._deadlines.set(lease, deadline)
        holders = self._leases.holders
        holders |= dict.fromkeys(range(first, last + 1), lease)
        if len(self._deadlines) > 2 * len(holders) + _SPARE_DEADLINES:
            # Records are settled long before leases of hours end, and renewed leases replace others.
            self._deadlines.keep(set(holders.values()))
        if len(self._only_waiting) > 2 * len(holders) + _SPARE_DEADLINES:
            self._only_waiting.intersection_update(holders.values())

    def acknowledge(
        self, member: MemberId, acknowledgements: Sequence[Acknowledgement], now: float, terms: LeaseTerms
    ) -> None:
        """Apply all acknowledgements, or none; in the order of their offsets.

        Raises NotLeased if the member has no lease on one of the records. Records that retention has deleted
        meanwhile are skipped.
        """
        self.expire(now, terms)
        acknowledgements = self.check_held(member, acknowledgements)
        for each in acknowledgements:
            self._apply(member, each, now, terms)

    def check_held(
        self, member: MemberId, acknowledgements: Sequence[Acknowledgement]
    ) -> list[Acknowledgement]:
        """Those of records that retention has not deleted. Raises NotLeased."""
        if self.is_closed:
            raise NotLeased("the group was moved; what was leased before is not held any more")
        acknowledgements = [each for each in acknowledgements if each.last >= self.start]
        first = self.start
        for each in acknowledgements:
            for offset in range(max(each.first, self.start), each.last + 1):
                if offset < first or self.holder(offset) != member:
                    raise NotLeased(f"the record at {offset} is not held by {member!r}")
            first = each.last + 1
        return acknowledgements

    def _apply(self, member: MemberId, said: Acknowledgement, now: float, terms: LeaseTerms) -> None:
        if len(said.verdicts) == 1 and said.verdicts[0] in _SETTLING:
            self._leases.settle_range(max(said.first, self.start), said.last + 1)
            return
        for offset, verdict in said:
            if offset < self.start:
                continue
            if verdict is Verdict.RENEW:
                seconds = terms.lock_seconds if said.seconds is None else said.seconds
                # Its place may be another one's by now.
                only_waits = said.only_waits or self._leases.holders[offset].only_waits
                self._lease(offset, offset, member, now + seconds, counts=said.counts, only_waits=only_waits)
            elif verdict is Verdict.RELEASE:
                self._release(offset, self._leases.holders[offset], terms, count=said.counts)
            else:
                self._leases.settle_range(offset, offset + 1)

    def expire(self, now: float, terms: LeaseTerms) -> bool:
        """Release expired leases; returns whether there were any."""
        before = self.leased
        for lease in self._deadlines.overdue(now):
            for offset in range(lease.first, lease.last + 1):
                self._release(offset, lease, terms, count=lease.counts)
        if not self.leased:
            self._deadlines.clear()
        return self.leased < before

    def hold(self, member: MemberId, offsets: Iterable[int], deadline: float) -> None:
        """Lease those of the records that the member holds until then, and not for as long as before."""
        for offset in [offset for offset in offsets if self.holder(offset) == member]:
            self._lease(offset, offset, member, deadline)

    def end_long_leases(self, member: MemberId, deadline: float) -> None:
        """The member's connection has ended: it may never have got what it was sent last."""
        leases = {each for each in self._leases.holders.values() if each.while_connected}
        for lease in leases:
            if lease.member == member:
                self._deadlines.shorten(lease, deadline)

    def take_back(self, member: MemberId, terms: LeaseTerms, *, count: bool | None) -> bool:
        """Release all leases of the member. With `count`, they count as deliveries; None: as when they
        expire."""
        held = [each for each in self._leases.holders.items() if each[1].member == member]
        for offset, lease in held:
            self._release(offset, lease, terms, count=lease.counts if count is None else count)
        return bool(held)

    def give_back(self, member: MemberId, offsets: Iterable[int], terms: LeaseTerms) -> bool:
        """Release those of the records that the member holds, as if it never had them."""
        held = [offset for offset in offsets if self.holder(offset) == member]
        for offset in held:
            self._release(offset, self._leases.holders[offset], terms, count=False)
        return bool(held)

    def prolong(self, member: MemberId, offsets: Iterable[int], until: float) -> None:
        """Leases of the member on these records do not end before then."""
        for offset in offsets:
            lease = self._leases.holders.get(offset)
            if lease is not None and lease.member == member and self._deadlines.of(lease) < until:
                self._lease(offset, offset, member, until)

    def _release(self, offset: int, lease: RecordLease, terms: LeaseTerms, *, count: bool = True) -> None:
        if not self._leases.release(offset, lease):
            return
        if count and self.progress.came_back(offset) >= terms.max_deliveries and not terms.has_dead_letters:
            self.progress.settle(offset)
            return
        if offset < self._ready_from:
            self._ready_from = offset
        for selection, end in self._unwanted.items():
            if offset < end:
                self._unwanted[selection] = offset
        for look in self._looks:
            look.came_back(offset)

    def pass_over(self, first: int, end: int) -> None:
        """Settle offsets from `first` to before `end`, which have no records for this group.

        Leases on them stay: the member has the record, though the log may not.
        """
        self._leases.settle_unleased(first, end)

    def trim(self, start: int) -> None:
        """Set the log start."""
        if start <= self.start:
            return
        self.start = start
        self._leases.drop_below(start)
        if start > self.progress.floor:
            self.progress.settle_range(self.progress.floor, start)
