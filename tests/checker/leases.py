"""What the consumers of a group are handed for a while: to whom, in which order, and how often."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from tests.checker.history import (
    Ack,
    Bury,
    ChangeLease,
    DeadLetters,
    Fault,
    Lease,
    Operation,
    Outcome,
    Partition,
    Takeover,
)
from tests.checker.queues import Key
from tests.checker.report import Anomaly, Kind

_Settlement = Ack | Bury | ChangeLease
_Lane = tuple[str, Partition, str]
"""A queue, a partition of its topic, and the name of the lane."""


class Leases:
    """The part of a history that is about leases."""

    def __init__(self, history: Iterable[Operation]) -> None:
        self.of: defaultdict[Key, list[Lease]] = defaultdict(list)
        """In the order in which they were heard of."""
        self.settlements: defaultdict[Key, list[_Settlement]] = defaultdict(list)
        """That were done, or may have been."""
        self.lanes: defaultdict[_Lane, list[Lease]] = defaultdict(list)
        self.dead: list[DeadLetters] = []
        self._upsets: list[tuple[int, int]] = []
        for operation in history:
            match operation:
                case Lease():
                    self.of[operation.queue, operation.value].append(operation)
                    if operation.lane is not None:
                        lane = operation.queue, operation.partition, operation.lane
                        self.lanes[lane].append(operation)
                case Ack() | Bury() | ChangeLease() if operation.outcome is not Outcome.FAILED:
                    self.settlements[operation.queue, operation.value].append(operation)
                case DeadLetters():
                    self.dead.append(operation)
                case Fault():
                    self._upsets.append((operation.at, operation.at))
                case Takeover():
                    self._upsets.append((operation.at, operation.since))
                case _:
                    pass  # of other checks
        self._upsets.sort()

    def upsets(self, since: int, until: float = inf) -> int:
        """How many faults and takeovers there were then. The broker forgets leases, and deliveries that it
        has not stored."""
        first = bisect_left(self._upsets, (since, 0))
        return sum(began <= until for _, began in self._upsets[first:])

    def last_upset(self, before: int) -> float:
        found = bisect_left(self._upsets, (before, 0))
        return self._upsets[found - 1][0] if found else -inf


def check_leases(history: Sequence[Operation]) -> Iterator[Anomaly]:
    leases = Leases(history)
    for key, found in leases.of.items():
        yield from _shared(leases, key, found)
    dead = {(each.queue, value) for each in leases.dead for value in each.values}
    for lane, found in leases.lanes.items():
        yield from _Order(leases, lane, found, dead).check()
    for each in leases.dead:
        yield from _too_often(leases, each)
        yield from _dead_too_early(leases, each)
    yield from _lost_dead_letters(leases, dead)


def _shared(leases: Leases, key: Key, found: Sequence[Lease]) -> Iterator[Anomaly]:
    """While a consumer has a message, no call hands it to another one, or to itself again. It surely has it
    from the end of a call until a time after the beginning of that call. The lease ends early when the
    message is acknowledged, made a dead letter or given back; to have asked for that may have ended it,
    whatever was answered. Faults and takeovers end all leases."""
    settlements = leases.settlements.get(key, [])
    changes = [
        each
        for each in settlements
        if isinstance(each, ChangeLease) and each.lasts and each.outcome is Outcome.OK
    ]
    held: list[Lease | ChangeLease] = [*found, *changes]
    for hold in held:
        for later in found:
            if not hold.completed < later.invoked or later.completed >= hold.invoked + hold.lasts:
                continue
            is_over = any(
                each.completed > hold.completed and each.invoked < later.completed for each in settlements
            )
            if is_over or leases.upsets(hold.invoked, later.completed):
                continue
            text = f"{key[1]} came from {key[0]} to consumer {later.process} while {hold.process} had it"
            yield Anomaly(Kind.SHARED_LEASE, text, (key[1],))


@dataclass(slots=True)
class _Place:
    """One message of a lane."""

    value: int
    settled: float
    """When somebody asked for the first time to settle it; at once, if it became a dead letter."""
    settled_below: float = -inf
    """When all before it were settled."""
    leases: list[Lease] = field(default_factory=list)


class _Order:
    """The messages of a lane come one after the other: when one is handed out, all before it are settled, or
    are handed out by the same call. Settled is what somebody asked to be, whatever was answered: the broker
    may go on at once. But if one comes again later, and there was no fault in which it could be forgotten
    that it was settled, then it was not. A message that became a dead letter may have been one by then."""

    def __init__(self, leases: Leases, lane: _Lane, found: Sequence[Lease], dead: set[Key]) -> None:
        self._leases = leases
        self._name = f"{lane[2]} in {lane[0]}, {lane[1][0]}-{lane[1][1]}"
        self._found = sorted(found, key=lambda lease: lease.completed)
        self._calls: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        """The offsets that each call handed out, by its process and its beginning."""
        places: dict[int, _Place] = {}
        for lease in found:
            place = places.get(lease.offset)
            if place is None:
                key = lease.queue, lease.value
                place = places[lease.offset] = _Place(
                    lease.value, -inf if key in dead else self._settled(key)
                )
            place.leases.append(lease)
            self._calls[lease.process, lease.invoked].add(lease.offset)
        self._offsets = sorted(places)
        self._places = [places[offset] for offset in self._offsets]
        latest = -inf
        for place in self._places:
            place.settled_below = latest
            latest = max(latest, place.settled)

    def _settled(self, key: Key) -> float:
        asked = [
            each.invoked
            for each in self._leases.settlements.get(key, ())
            if not isinstance(each, ChangeLease)
        ]
        return min(asked, default=inf)

    def check(self) -> Iterator[Anomaly]:
        for lease in self._found:
            yield from self._overtaken(lease)
        for number, place in enumerate(self._places):
            for again in place.leases[1:]:
                yield from self._came_again(number, place, again)

    def _overtaken(self, lease: Lease) -> Iterator[Anomaly]:
        call = self._calls[lease.process, lease.invoked]
        number = bisect_left(self._offsets, lease.offset)
        while number and self._places[number].settled_below >= lease.completed:
            number -= 1
            before = self._places[number]
            if before.settled >= lease.completed and self._offsets[number] not in call:
                text = f"{lease.value} of {self._name} came before {before.value}, which nobody had settled"
                yield Anomaly(Kind.LANE_ORDER, text, (before.value, lease.value))
                return

    def _came_again(self, number: int, place: _Place, again: Lease) -> Iterator[Anomaly]:
        calm_since = self._leases.last_upset(again.completed)
        offset = self._offsets[number]
        first = bisect_left(self._found, calm_since, key=lambda lease: lease.completed)
        for lease in self._found[first:]:
            if lease.completed >= again.invoked:
                return
            if lease.offset <= offset or lease.invoked <= calm_since:
                continue
            if offset not in self._calls[lease.process, lease.invoked]:
                text = f"{lease.value} of {self._name} came before {place.value}, which came again later"
                yield Anomaly(Kind.LANE_ORDER, text, (place.value, lease.value))
                return


def _too_often(leases: Leases, dead: DeadLetters) -> Iterator[Anomaly]:
    """A message is delivered so often, as the broker counts, and no more."""
    for (queue, value), found in leases.of.items():
        if queue != dead.queue:
            continue
        attempts = max(each.attempt for each in found)
        if attempts > dead.most_deliveries:
            text = f"{value} was delivered from {queue} as attempt {attempts} of {dead.most_deliveries}"
            yield Anomaly(Kind.TOO_MANY_DELIVERIES, text, (value,))


def _dead_too_early(leases: Leases, dead: DeadLetters) -> Iterator[Anomaly]:
    """A dead letter was made one by a consumer, or was delivered as often as it may be. With each fault one
    more delivery may not have been heard of, as the call was lost."""
    for value in dict.fromkeys(dead.values):
        key = dead.queue, value
        if any(isinstance(each, Bury) for each in leases.settlements.get(key, ())):
            continue
        found = leases.of.get(key, [])
        first = min((each.invoked for each in found), default=0)
        attempts = max((each.attempt for each in found), default=0)
        if attempts + leases.upsets(first) < dead.most_deliveries:
            text = f"{value} is a dead letter of {dead.queue} after {attempts} deliveries"
            yield Anomaly(Kind.EARLY_DEATH, text, (value,))


def _lost_dead_letters(leases: Leases, dead: set[Key]) -> Iterator[Anomaly]:
    """What a consumer surely made a dead letter is one."""
    told = {each.queue for each in leases.dead}
    for key, settlements in leases.settlements.items():
        buried = any(isinstance(each, Bury) and each.outcome is Outcome.OK for each in settlements)
        if buried and key not in dead and key[0] in told:
            text = f"{key[1]} was made a dead letter of {key[0]}, and is not there in the end"
            yield Anomaly(Kind.LOST_DEAD_LETTER, text, (key[1],))
