"""What all connections share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.groups.committing import NewOffset
from posthouse.model.ids import GroupId, PartitionId
from posthouse.protocols.budget import Budget
from posthouse.protocols.noop import noop
from posthouse.protocols.request_metrics import RequestMetrics
from posthouse.protocols.rocketmq.clients import Clients, Member
from posthouse.protocols.rocketmq.codec.heartbeats import BROADCASTING, PUSH
from posthouse.protocols.rocketmq.offset_resets import OffsetResets
from posthouse.protocols.rocketmq.queue_locks import QueueLocks
from posthouse.protocols.rocketmq.recall_handles import KEY_PURPOSE
from posthouse.protocols.rocketmq.remoting.group_members import RemotingMembers
from posthouse.protocols.rocketmq.topics import RocketTopics
from posthouse.settings import Settings

_SWEEP_SECONDS: Final = 10.0


class RemotingServer:
    """Owned by the event loop."""

    def __init__(
        self,
        broker: Broker,
        settings: Settings,
        budget: Budget,
        requests: RequestMetrics,
    ) -> None:
        self.broker = broker
        self.settings = settings
        self.budget = budget
        self.requests = requests
        self.clients = Clients(broker.monotonic)
        self.members = RemotingMembers(self.clients)
        broker.protocol_members.add(self.members)
        self.locks = QueueLocks(broker.monotonic)
        self.topics = RocketTopics(broker)
        self.resets = OffsetResets(broker.monotonic)
        broker.groups.offsets.follow_moves(self._group_moved)
        broker.half_messages.ask_by(self.clients.ask)
        self.started_ms = broker.now_ms()
        self._swept = broker.monotonic()

    @property
    def handle_key(self) -> bytes:
        """Of recall handles."""
        return self.broker.access.key(KEY_PURPOSE)

    def sweep(self) -> None:
        """Called by each connection once a second."""
        now = self.broker.monotonic()
        if now - self._swept >= _SWEEP_SECONDS:
            self._swept = now
            self.clients.forget_silent()
            self.locks.forget_expired()
            self._remind()

    def _group_moved(self, group: GroupId, offsets: Sequence[NewOffset]) -> Callable[[], None]:
        """Members are to go on from these offsets. Those that wait for messages are told at once."""
        members = self.clients.consumers(group)
        if not members:
            return noop
        for member in members:
            if member.group.message_model == BROADCASTING:
                self._tell(member, {each.partition: each.offset for each in offsets})
        if all(member.group.message_model == BROADCASTING for member in members):
            return noop
        take_back = self.resets.begin(group, {each.partition: each.offset for each in offsets})
        for each in offsets:
            self.broker.wake_readers_of(each.partition)
        return take_back

    def _remind(self) -> None:
        """Consumers that do not pull, as they have enough to do, are asked to give that up."""
        for group, offsets in self.resets.overdue().items():
            for member in self.clients.consumers(group):
                if member.group.consume_type == PUSH and member.group.message_model != BROADCASTING:
                    for partition in self._tell(member, offsets):
                        self.resets.told(group, partition)
        self.resets.forget_expired(lambda group: bool(self.clients.members(group)))

    def _tell(self, member: Member, offsets: Mapping[PartitionId, int]) -> list[PartitionId]:
        """Returns the partitions of topics that the member has subscribed to."""
        told: list[PartitionId] = []
        for subscription in member.group.subscriptions:
            topic = self.topics.find(subscription.topic)
            if topic is None:
                continue
            found = [partition for partition in offsets if partition.topic == topic.id]
            if found:
                queues = {partition.index: offsets[partition] for partition in found}
                member.connection.reset_offsets(member.group.name, subscription.topic, queues)
                told += found
        return told
