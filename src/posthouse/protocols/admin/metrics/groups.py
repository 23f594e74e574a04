"""Groups: members, and how far they are behind."""

from contextlib import suppress
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.model.errors import Unavailable
from posthouse.model.ids import GroupId, PartitionId
from posthouse.protocols.admin.group_views import GroupViews
from posthouse.protocols.admin.metrics.delivery_limits import OF_GROUPS, add_limits
from posthouse.protocols.admin.metrics.family import gauge
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.admin.metrics.selection import OTHER, Selection
from posthouse.protocols.admin.metrics.table import Rows, Table

GROUPS: Final = gauge("posthouse_groups", "Groups of all kinds: classic, consumer, streams and share groups.")
MEMBERS: Final = gauge("posthouse_group_members", "Members.", "group")
LAG: Final = gauge(
    "posthouse_group_lag_records",
    "Offsets that the group has yet to read, or to acknowledge in a share group, of the whole topic.",
    "group",
    "topic",
)
FAMILIES: Final = (GROUPS, MEMBERS, LAG, *OF_GROUPS)


class GroupMetrics:
    def __init__(self, broker: Broker, limit: int) -> None:
        self._broker = broker
        self._groups = Selection(limit)
        self._lags = Selection(limit)
        self._member_table = Table(MEMBERS)
        self._lag_table = Table(LAG)

    async def collect(self, samples: Samples) -> dict[str, int]:
        """How many of each kind of objects were not shown by name."""
        with suppress(Unavailable):  # while the database is away, what was known counts
            await self._broker.groups.offsets.follow()
        names = GroupViews(self._broker).names()
        samples.add(GROUPS, len(names))
        other_members = other_lag = 0
        of_groups, of_topics = Rows(), Rows()
        for group in map(GroupId, names):
            if not self._broker.subscriptions.held.serves(group):
                continue  # it moves to another broker
            is_shared = group in self._broker.subscriptions
            members = self._broker.groups.member_count(group) + len(self._broker.protocol_members.of(group))
            if self._groups.shows(group, None):
                of_groups.add((group,), members)
                if (limiter := self._broker.group_limiters.of(group)) is not None:
                    add_limits(samples, OF_GROUPS, limiter.limiter, group)
            else:
                other_members += members
            lags = await (self._unacknowledged if is_shared else self._unread)(group, samples)
            for topic, lag in lags.items():
                if self._lags.shows((group, topic), None):
                    of_topics.add((group, topic), lag)
                else:
                    other_lag += lag
            await samples.turns.next()
        self._groups.done()
        self._lags.done()
        await self._member_table.fill(samples, of_groups)
        await self._lag_table.fill(samples, of_topics)
        if self._groups.has_other:
            samples.add(MEMBERS, other_members, OTHER)
        if self._lags.has_other:
            samples.add(LAG, other_lag, OTHER, OTHER)
        return {"groups": self._groups.summed, "group_topics": self._lags.summed}

    async def _unread(self, group: GroupId, samples: Samples) -> dict[str, int]:
        """By topic."""
        offsets = self._broker.groups.offsets
        lags: dict[str, int] = {}
        for partition in offsets.partitions(group):
            committed = offsets.get(group, partition)
            if committed is not None:
                self._add(lags, partition, committed.offset)
            await samples.turns.next()
        return lags

    async def _unacknowledged(self, group: GroupId, samples: Samples) -> dict[str, int]:
        """Of a share group, by topic."""
        lags: dict[str, int] = {}
        for partition, subscribed in list(self._broker.subscriptions.progress(group).items()):
            progress = subscribed.progress
            self._add(lags, partition, progress.floor + progress.settled_above)
            await samples.turns.next()
        return lags

    def _add(self, lags: dict[str, int], partition: PartitionId, done: int) -> None:
        topic = self._broker.topics.find_by_id(partition.topic)
        if topic is not None and partition.index < topic.partitions:  # else it was deleted meanwhile
            end = self._broker.bounds(topic, partition.index).end
            lags[topic.name] = lags.get(topic.name, 0) + max(end - done, 0)
