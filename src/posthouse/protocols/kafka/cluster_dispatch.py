"""Dispatch in a broker that shares its storage: as the coordinator while it is that, else as a member.

A request that another broker relays to the coordinator, or to the holder of a transactional id, is refused if
this broker is not that any more: the response is its correlation id alone, and this broker begins no later
request of that connection. So the other broker knows that it may send them to the next holder.
"""

from functools import partial
from struct import Struct

from posthouse.broker.broker import Broker
from posthouse.model.scopes import COORDINATOR, Scope
from posthouse.protocols.kafka.codec.headers import decode_request_header
from posthouse.protocols.kafka.dispatch import RequestDispatcher
from posthouse.protocols.kafka.leased_dispatch import LeasedCall, coordinator_tables
from posthouse.protocols.kafka.member_dispatch import MemberCall, member_tables
from posthouse.protocols.kafka.nodes import Node
from posthouse.protocols.kafka.pending_request import PendingRequest
from posthouse.protocols.membership import Membership
from posthouse.protocols.request_metrics import RequestMetrics

_REFUSAL = Struct(">ii")
"""A frame: the length, and the correlation id of the request."""


class ClusterDispatcher(RequestDispatcher):
    def __init__(
        self, broker: Broker, requests: RequestMetrics, membership: Membership, *, can_relay: bool
    ) -> None:
        super().__init__(broker, requests)
        self._membership = membership
        self._holds = broker.holds
        self._as_coordinator = coordinator_tables(self._served)
        self._as_member = member_tables(self._as_coordinator)
        self._new_coordinator_call = partial(LeasedCall, membership, can_relay)
        self._new_member_call = partial(MemberCall, membership, can_relay)

    def dispatch(self, frame: memoryview, node: Node, pending: PendingRequest) -> None:
        membership = self._membership
        relayed_for = pending.session.relayed_for
        if relayed_for is not None and self._has_lost(relayed_for):
            _refuse(frame, pending)
            return
        if membership.coordinates:
            tables, self._new_call = self._as_coordinator, self._new_coordinator_call
        else:
            tables, self._new_call = self._as_member, self._new_member_call
        self._served = tables.everything if membership.standing.is_valid else tables.cut_off
        pending.frame = frame
        super().dispatch(frame, node, pending)

    def _has_lost(self, scope: Scope) -> bool:
        """Members of groups are told to look for another broker instead."""
        if scope == COORDINATOR:
            return not self._membership.coordinates
        return scope.transaction_shard is not None and not self._holds(scope)


def _refuse(frame: memoryview, pending: PendingRequest) -> None:
    header, _ = decode_request_header(frame)
    pending.answer([_REFUSAL.pack(_REFUSAL.size - 4, header.correlation_id)])
    pending.host.finish()
