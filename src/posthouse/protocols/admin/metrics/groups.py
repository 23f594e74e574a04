"""Groups: members, and how far they are behind."""

from typing import Final

from posthouse.broker.broker import Broker
from posthouse.model.errors import UnknownPartition
from posthouse.model.ids import GroupId
from posthouse.protocols.admin.metrics.family import gauge
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.admin.metrics.selection import OTHER, Selection

GROUPS: Final = gauge("posthouse_groups", "Consumer groups, classic and new, and streams groups.")
MEMBERS: Final = gauge("posthouse_group_members", "Members.", "group")
LAG: Final = gauge(
    "posthouse_group_lag_records",
    "Offsets between the committed offsets and the ends of their partitions, summed over the topic.",
    "group",
    "topic",
)
FAMILIES: Final = (GROUPS, MEMBERS, LAG)


class GroupMetrics:
    def __init__(self, broker: Broker, limit: int) -> None:
        self._broker = broker
        self._groups = Selection(limit)
        self._lags = Selection(limit)

    async def collect(self, samples: Samples) -> dict[str, int]:
        """How many of each kind of objects were not shown by name."""
        groups = self._broker.groups
        listed = [each.id for each in groups.listed()]
        samples.add(GROUPS, len(listed))
        other_members = other_lag = 0
        for group in listed:
            members = groups.member_count(group)
            if self._groups.shows(group, None):
                samples.add(MEMBERS, members, group)
            else:
                other_members += members
            for topic, lag in (await self._lag(group, samples)).items():
                if self._lags.shows((group, topic), None):
                    samples.add(LAG, lag, group, topic)
                else:
                    other_lag += lag
            await samples.turns.next()
        self._groups.done()
        self._lags.done()
        if self._groups.has_other:
            samples.add(MEMBERS, other_members, OTHER)
        if self._lags.has_other:
            samples.add(LAG, other_lag, OTHER, OTHER)
        return {"groups": self._groups.summed, "group_topics": self._lags.summed}

    async def _lag(self, group: GroupId, samples: Samples) -> dict[str, int]:
        """By topic."""
        broker, offsets = self._broker, self._broker.groups.offsets
        lags: dict[str, int] = {}
        for partition in offsets.partitions(group):
            committed = offsets.get(group, partition)
            try:
                topic = broker.topic_by_id(partition.topic)
                end = broker.bounds(topic, partition.index).end
            except UnknownPartition:
                continue  # the topic was deleted meanwhile
            if committed is not None:
                lags[topic.name] = lags.get(topic.name, 0) + max(end - committed.offset, 0)
            await samples.turns.next()
        return lags
