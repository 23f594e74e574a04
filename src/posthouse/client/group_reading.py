"""Reading as a member of a consumer group whose partitions the broker assigns (KIP-848).

The member sends a heartbeat between two fetches. It commits what its user has finished with before it gives a
partition up, and when it leaves. A partition without a committed offset begins at `start`.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence

from posthouse.client.closable import Closable
from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import BadArgument, RequestRefused, refused
from posthouse.client.group_coordinators import ask_coordinator
from posthouse.client.group_offsets import commit_offsets, committed_offsets
from posthouse.client.positions import Start, first_offsets
from posthouse.client.reading import Fetched, Reading
from posthouse.client.topic_partitions import TopicPartition
from posthouse.protocols.kafka.codec.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_JOINING = 0
_LEAVING = -1
_REBALANCE_MS = 60_000
_LOST_MEMBERSHIP = frozenset({25, 110, 113})
"""Unknown member id, fenced or stale member epoch: the broker no longer counts us in."""
_IDLE_SECONDS = 0.1


class GroupReading(Closable):
    """A member of `group`, from the first iteration to `close`."""

    def __init__(
        self, cluster: Cluster, group: str, *, topics: Sequence[str], pattern: str | None, start: Start
    ) -> None:
        """Subscribes to `topics`, and to those whose whole name the regular expression `pattern` matches."""
        if not group:
            raise BadArgument("the name of the group is empty; give one")
        self._cluster = cluster
        self._group = group
        self._topics = list(topics)
        self._pattern = pattern
        self._start = start
        self._member = str(uuid.uuid4())
        self._epoch = _JOINING
        self._next_beat = 0.0
        self._owned: dict[bytes, list[int]] = {}
        self._infos: dict[bytes, TopicInfo] = {}
        self._reading = Reading(cluster, [], {}, follow=True)
        self._finished: dict[TopicPartition, int] = {}
        """The next offset to commit, where the user has finished with some records."""

    def __iter__(self) -> Iterator[Fetched]:
        """Going on to the next one says that the one before is finished."""
        while True:
            yield from self.poll()

    def poll(self) -> Iterator[Fetched]:
        """What one round of fetches finds: nothing, perhaps, after a short time. To leave a round early,
        call `give_back`."""
        self._commit()
        self._beat_when_due()
        if not self._reading.positions:
            time.sleep(_IDLE_SECONDS)
            return
        for fetched in self._reading.poll():
            place = TopicPartition(fetched.topic, fetched.partition)
            following = self._reading.positions[place]
            yield fetched
            self._finished[place] = following
        self._commit()

    def finish(self, fetched: Fetched, following: int) -> None:
        """The records of `fetched` before offset `following` are finished, the others are not."""
        self._finished[TopicPartition(fetched.topic, fetched.partition)] = following

    def give_back(self, fetched: Fetched, following: int) -> None:
        """The records of `fetched` from offset `following` on are to be fetched again, after those of other
        partitions. The round ends."""
        self.finish(fetched, following)
        place = TopicPartition(fetched.topic, fetched.partition)
        del self._reading.positions[place]
        self._reading.positions[place] = following

    @property
    def is_beat_due(self) -> bool:
        """The broker counts a member out that does not `poll` for long."""
        return time.monotonic() >= self._next_beat

    def close(self) -> None:
        """Commit what is finished, and leave the group."""
        if self._epoch <= _JOINING:
            return
        # Over new connections: Ctrl-C may have left an answer unread in the old ones.
        self._cluster.close()
        self._commit()
        if self._epoch > _JOINING:
            self._epoch = _LEAVING
            self._ask()

    def _beat_when_due(self) -> None:
        if not self.is_beat_due:
            return
        answer = self._ask()
        if answer.error_code in _LOST_MEMBERSHIP:
            self._start_anew()
            answer = self._ask()
        if answer.error_code:
            raise refused(answer.error_code, answer.error_message, self._group)
        self._epoch = answer.member_epoch
        self._next_beat = time.monotonic() + answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self._take(answer.assignment)

    def _ask(self) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._member, member_epoch=self._epoch
        )
        if self._epoch != _LEAVING:
            request.rebalance_timeout_ms = _REBALANCE_MS
            request.subscribed_topic_names = self._topics
            request.subscribed_topic_regex = self._pattern
            request.topic_partitions = [
                TopicPartitions(topic_id=topic, partitions=indexes) for topic, indexes in self._owned.items()
            ]
        return ask_coordinator(
            self._cluster,
            self._group,
            lambda connection: connection.ask(request, ConsumerGroupHeartbeatResponse),
            lambda answer: answer.error_code,
        )

    def _take(self, assignment: Assignment) -> None:
        self._commit()
        owned = {each.topic_id: sorted(each.partitions) for each in assignment.topic_partitions}
        if not owned.keys() <= self._infos.keys():
            self._infos = {info.id: info for info in self._cluster.topics()}
        # A topic may have been deleted since it was assigned: its id is unknown then.
        self._owned = {topic: indexes for topic, indexes in owned.items() if topic in self._infos}
        infos = [self._infos[topic] for topic in self._owned]
        self._reading = Reading(self._cluster, infos, self._positions(infos), follow=True)
        self._next_beat = 0.0  # the broker waits to hear what we own

    def _positions(self, infos: Sequence[TopicInfo]) -> Mapping[TopicPartition, int]:
        known = {**committed_offsets(self._cluster, self._group, infos), **self._reading.positions}
        positions: dict[TopicPartition, int] = {}
        for info in infos:
            places = [TopicPartition(info.name, index) for index in self._owned[info.id]]
            new = [place.partition for place in places if place not in known]
            offsets = first_offsets(self._cluster, info, new, self._start) if new else {}
            positions |= {place: known.get(place, offsets.get(place.partition, 0)) for place in places}
        # What was given back stays behind other partitions.
        kept = {place: positions[place] for place in self._reading.positions if place in positions}
        return kept | positions

    def _commit(self) -> None:
        if not self._finished:
            return
        finished, self._finished = self._finished, {}
        by_name = {info.name: info for info in self._infos.values()}
        offsets: dict[str, dict[int, int]] = {}
        for place, offset in finished.items():
            offsets.setdefault(place.topic, {})[place.partition] = offset
        pairs = [(by_name[topic], partitions) for topic, partitions in offsets.items()]
        try:
            commit_offsets(self._cluster, self._group, pairs, member=self._member, epoch=self._epoch)
        except RequestRefused as error:
            if error.code not in _LOST_MEMBERSHIP:
                raise
            self._start_anew()

    def _start_anew(self) -> None:
        """The broker gave our partitions to other members, because it has not heard from us for too long.
        These begin at the last commit."""
        self._epoch, self._next_beat = _JOINING, 0.0
        self._owned, self._finished = {}, {}
        self._reading = Reading(self._cluster, [], {}, follow=True)
