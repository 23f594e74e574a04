"""Server-side assignors of partitions to members. Pure functions.

Every partition of a subscribed topic is assigned to exactly one of its subscribers.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from posthouse.model.ids import InstanceId, MemberId, PartitionId, TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    topics: frozenset[TopicId]
    current: frozenset[PartitionId] = frozenset()
    """The partitions assigned so far."""
    instance: InstanceId | None = None


Subscribers = Mapping[MemberId, Subscriber]
Sizes = Mapping[TopicId, int]
"""The number of partitions of each topic."""
Assignment = dict[MemberId, frozenset[PartitionId]]


def assign_range(subscribers: Subscribers, sizes: Sizes) -> Assignment:
    """Neighbouring partitions of each topic, so that one member gets equal partitions of co-partitioned
    topics."""
    order = sorted(subscribers, key=lambda each: (subscribers[each].instance or each, each))
    shares: dict[MemberId, set[PartitionId]] = {member: set() for member in subscribers}
    for topic, count in sizes.items():
        readers = [member for member in order if topic in subscribers[member].topics]
        if not readers:
            continue
        share, extra = divmod(count, len(readers))
        first = 0
        for place, member in enumerate(readers):
            last = first + share + (place < extra)
            shares[member].update(PartitionId(topic, index) for index in range(first, last))
            first = last
    return _frozen(shares)


def assign_uniform(subscribers: Subscribers, sizes: Sizes) -> Assignment:
    """As balanced as possible, and with as few moves as possible.

    If all members have the same subscription, their shares differ by one at most.
    """
    if not subscribers:
        return {}
    kept = _kept(subscribers, sizes)
    if len({each.topics for each in subscribers.values()}) == 1:
        return _evenly(subscribers, sizes, kept)
    return _as_evenly_as_possible(subscribers, sizes, kept)


def _kept(subscribers: Subscribers, sizes: Sizes) -> dict[MemberId, list[PartitionId]]:
    """The partitions that each member may keep: they still exist, are still subscribed to, and have one
    owner."""
    taken: set[PartitionId] = set()
    kept: dict[MemberId, list[PartitionId]] = {}
    for member, subscriber in subscribers.items():
        kept[member] = [
            partition
            for partition in sorted(subscriber.current, key=_order)
            if partition.topic in subscriber.topics
            and partition.index < sizes.get(partition.topic, 0)
            and partition not in taken
        ]
        taken.update(kept[member])
    return kept


def _evenly(subscribers: Subscribers, sizes: Sizes, kept: dict[MemberId, list[PartitionId]]) -> Assignment:
    topics = next(iter(subscribers.values())).topics
    total = sum(sizes.get(topic, 0) for topic in topics)
    share, extra = divmod(total, len(subscribers))
    # Members with most partitions keep the remainder: anything else would move one more.
    limits = {
        member: share + (place < extra)
        for place, member in enumerate(sorted(kept, key=lambda member: -len(kept[member])))
    }
    shares = {member: kept[member][: limits[member]] for member in subscribers}
    held = {partition for share_of_one in shares.values() for partition in share_of_one}
    free = [
        partition
        for topic in sorted(topics)
        for index in range(sizes.get(topic, 0))
        if (partition := PartitionId(topic, index)) not in held
    ]
    for member, share_of_one in shares.items():
        while len(share_of_one) < limits[member]:
            share_of_one.append(free.pop())
    return _frozen(shares)


def _as_evenly_as_possible(
    subscribers: Subscribers, sizes: Sizes, kept: dict[MemberId, list[PartitionId]]
) -> Assignment:
    readers: defaultdict[TopicId, list[MemberId]] = defaultdict(list)
    for member, subscriber in subscribers.items():
        for topic in subscriber.topics:
            readers[topic].append(member)
    shares = {member: set(partitions) for member, partitions in kept.items()}
    held = {partition for share in shares.values() for partition in share}
    # Topics with few subscribers first: the others can balance that.
    for topic in sorted(readers, key=lambda topic: (len(readers[topic]), topic)):
        for index in range(sizes.get(topic, 0)):
            partition = PartitionId(topic, index)
            if partition not in held:
                least = min(readers[topic], key=lambda member: len(shares[member]))
                shares[least].add(partition)
    _level(shares, readers)
    return _frozen(shares)


def _level(shares: dict[MemberId, set[PartitionId]], readers: Mapping[TopicId, list[MemberId]]) -> None:
    """Move single partitions from larger to smaller shares until balanced; every move lowers the sum of
    squares."""
    moved = True
    while moved:
        moved = False
        for giver in sorted(shares, key=lambda member: -len(shares[member])):
            for topic in sorted({partition.topic for partition in shares[giver]}):
                least = min(readers[topic], key=lambda member: len(shares[member]))
                of_topic = sorted((each for each in shares[giver] if each.topic == topic), key=_order)
                while of_topic and len(shares[least]) + 1 < len(shares[giver]):
                    partition = of_topic.pop()
                    shares[giver].remove(partition)
                    shares[least].add(partition)
                    least = min(readers[topic], key=lambda member: len(shares[member]))
                    moved = True


def _order(partition: PartitionId) -> tuple[TopicId, int]:
    return partition.topic, partition.index


def _frozen(shares: Mapping[MemberId, "set[PartitionId] | list[PartitionId]"]) -> Assignment:
    return {member: frozenset(share) for member, share in shares.items()}


Assignor = Callable[[Subscribers, Sizes], Assignment]

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR = "uniform"
