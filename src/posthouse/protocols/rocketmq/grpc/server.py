"""What all connections of the gRPC protocol share."""

import asyncio
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.model.ids import GroupId, MemberId
from posthouse.protocols.rocketmq.grpc.clients import GrpcClients
from posthouse.protocols.rocketmq.grpc.group_members import GrpcMembers
from posthouse.protocols.rocketmq.grpc.groups import LOCK_SECONDS, GrpcGroups
from posthouse.protocols.rocketmq.topics import RocketTopics
from posthouse.settings import Settings

_SWEEP_SECONDS: Final = 5.0


class MessagingServer:
    """Owned by the event loop."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self.broker = broker
        self.settings = settings
        self.topics = RocketTopics(broker)
        self.groups = GrpcGroups(broker)
        self.clients = GrpcClients(
            broker.monotonic,
            filters_changed=broker.subscriptions.selection_changed,
            gone=self._gone,
            disconnected=self._disconnected,
            left_alone=self._sweep_later,
        )
        broker.protocol_members.add(GrpcMembers(self.clients))
        broker.half_messages.ask_by(self._ask)
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None
        self._swept = broker.monotonic()

    def _gone(self, group: GroupId, member: MemberId) -> None:
        self.broker.subscriptions.release(group, member, count=True)

    def _disconnected(self, group: GroupId, member: MemberId) -> None:
        self.broker.subscriptions.end_long_leases(group, member, LOCK_SECONDS)

    def _sweep_later(self) -> None:
        """There is no connection whose ticks would do it."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep_alone)

    def _sweep_alone(self) -> None:
        self._timer = None
        self.sweep()
        if self.clients.are_alone:
            self._sweep_later()

    def _ask(self, id: int, message: HalfMessage) -> bool:
        return self.clients.ask(id, message)

    def next_turn(self) -> int:
        """A number for each call, so that calls begin with different queues."""
        self._turn += 1
        return self._turn

    def sweep(self) -> None:
        """Called by each connection once a second."""
        now = self.broker.monotonic()
        if now - self._swept >= _SWEEP_SECONDS:
            self._swept = now
            self.clients.forget_silent()
