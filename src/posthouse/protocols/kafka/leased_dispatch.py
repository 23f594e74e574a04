"""Dispatch in a broker that shares its storage, and may not always serve.

When it may not because the database cannot be reached, clients can still read records: those in its memory
and caches are durable. Everything else is refused with an error after which clients try again.

If there are other brokers, one of them may have taken over. Then this one does not name leaders either: it
closes the connections that ask for them, and the clients ask another broker.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from posthouse.broker.broker import Broker
from posthouse.protocols.kafka.call import Call
from posthouse.protocols.kafka.codec.headers import API_VERSIONS_KEY
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.dispatch import Dispatcher
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_heartbeat,
    describe_cluster,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    share_group_heartbeat,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
)
from posthouse.protocols.kafka.nodes import Node
from posthouse.protocols.kafka.pending_request import PendingRequest
from posthouse.protocols.membership import Membership
from posthouse.protocols.request_metrics import RequestMetrics

_READS = frozenset(
    {
        API_VERSIONS_KEY,
        describe_cluster.HANDLER.key,
        fetch.HANDLER.key,
        list_offsets.HANDLER.key,
        metadata.HANDLER.key,
        offset_for_leader_epoch.HANDLER.key,
        sasl_authenticate.HANDLER.key,
        sasl_handshake.HANDLER.key,
    }
)
_NAMING_THE_LEADER = frozenset({describe_cluster.HANDLER.key, metadata.HANDLER.key})
_OF_COORDINATORS = frozenset(
    {
        add_offsets_to_txn.HANDLER.key,
        add_partitions_to_txn.HANDLER.key,
        consumer_group_heartbeat.HANDLER.key,
        end_txn.HANDLER.key,
        find_coordinator.HANDLER.key,
        heartbeat.HANDLER.key,
        init_producer_id.HANDLER.key,
        join_group.HANDLER.key,
        leave_group.HANDLER.key,
        offset_commit.HANDLER.key,
        offset_fetch.HANDLER.key,
        share_group_heartbeat.HANDLER.key,
        streams_group_heartbeat.HANDLER.key,
        sync_group.HANDLER.key,
        txn_offset_commit.HANDLER.key,
    }
)
_REASON = "the database cannot be reached, and this broker may not serve until it is back"


class LeasedCall(Call):
    """A call whose answer is checked as well: it may come long after the request."""

    __slots__ = ("membership",)

    def __init__(self, membership: Membership, *context: Any) -> None:
        super().__init__(*context)
        self.membership = membership

    def respond(self, response: Message | None, *, has_failed: bool = False) -> None:
        if self.membership.standing.is_valid or self._may_be_answered_cut_off():
            super().respond(response, has_failed=has_failed)
        else:
            self._close_without_response()
            self.pending.give_up(_REASON)

    def _may_be_answered_cut_off(self) -> bool:
        handler = self.handler
        if handler.key in _NAMING_THE_LEADER:
            return not self.membership.has_others()
        return handler.key in _READS or handler.is_refusing


class LeasedDispatcher(Dispatcher):
    def __init__(
        self,
        broker: Broker,
        requests: RequestMetrics,
        membership: Membership,
        new_call: Callable[..., Call] | None = None,
    ) -> None:
        super().__init__(broker, requests, new_call or partial(LeasedCall, membership))
        self._standing = membership.standing
        self._everything = self._served
        self._reads = {
            key: (api, handler if key in _READS else _refusing(handler), metrics)
            for key, (api, handler, metrics) in self._served.items()
        }

    def dispatch(self, frame: memoryview, node: Node, pending: PendingRequest) -> None:
        self._served = self._everything if self._standing.is_valid else self._reads
        super().dispatch(frame, node, pending)


def _refusing(handler: Handler[Any]) -> Handler[Any]:
    """Clients look for another broker after these codes, and try again."""
    code = ErrorCode.NOT_CONTROLLER
    if handler.key == produce.HANDLER.key:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif handler.key in _OF_COORDINATORS:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def refuse(context: Context, request: Message) -> Message:
        raise Refused(code, _REASON)

    return replace(handler, handle=refuse, is_refusing=True)
