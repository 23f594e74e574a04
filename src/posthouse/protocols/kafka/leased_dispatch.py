"""Requests to a broker that shares its storage, and may not always serve. This is what the coordinator
answers; see `member_dispatch` for the others, and `cluster_dispatch` for the choice.

When it may not because the database cannot be reached, clients can still read records: those in its memory
and caches are durable. Everything else is refused with an error after which clients try again.

If there are other brokers, one of them may have taken over. Then this one does not name leaders either: it
closes the connections that ask for them, and the clients ask another broker.

A request that another broker has to answer, the one that holds a scope, is relayed. Its frame goes there as
the client has sent it, in the name of the client's user, and the response comes back with the client's
correlation id. If the other broker is lost before it has answered, or cannot be reached, the client's
connection is closed: the request may have had an effect, and clients try again after that.
"""

import asyncio
import logging
from dataclasses import dataclass, replace
from struct import Struct
from time import perf_counter
from typing import Any

from posthouse.model.errors import NotCoordinator, Unavailable
from posthouse.model.ids import GroupId
from posthouse.model.scopes import Scope, scope_of_group, scope_of_transactional_id
from posthouse.protocols.kafka.call import Call
from posthouse.protocols.kafka.codec.generated.produce import ProduceRequest
from posthouse.protocols.kafka.codec.headers import API_VERSIONS_KEY, decode_response_header, request_frame
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.codec.registry import APIS
from posthouse.protocols.kafka.dispatch import Served
from posthouse.protocols.kafka.errors import ErrorCode, NeedsHolder, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_share_group_offsets,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    delete_share_group_offsets,
    describe_cluster,
    describe_groups,
    describe_share_group_offsets,
    describe_transactions,
    end_together,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
)
from posthouse.protocols.kafka.named_topics import looking_for_topics
from posthouse.protocols.membership import Membership
from posthouse.storage.outcomes import OperationRefused

log = logging.getLogger(__name__)

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
OF_GROUPS = frozenset(
    each.HANDLER.key
    for each in (
        alter_share_group_offsets,
        consumer_group_describe,
        consumer_group_heartbeat,
        delete_groups,
        delete_share_group_offsets,
        describe_groups,
        describe_share_group_offsets,
        heartbeat,
        join_group,
        leave_group,
        list_groups,
        offset_commit,
        offset_delete,
        offset_fetch,
        share_acknowledge,
        share_fetch,
        share_group_describe,
        share_group_heartbeat,
        streams_group_describe,
        streams_group_heartbeat,
        sync_group,
        txn_offset_commit,
    )
)
"""Every broker serves them, for the groups whose scopes it holds."""
OF_TRANSACTIONS = frozenset(
    each.HANDLER.key
    for each in (
        add_offsets_to_txn,
        add_partitions_to_txn,
        describe_transactions,
        end_together,
        end_txn,
        init_producer_id,
        list_transactions,
    )
)
"""Every broker serves them, for the transactional ids whose scopes it holds."""
_OF_COORDINATORS = OF_GROUPS | OF_TRANSACTIONS | {find_coordinator.HANDLER.key}
_REASON = "the database cannot be reached, and this broker may not serve until it is back"


_LENGTH = Struct(">i")


_NOT_OF_THE_COORDINATOR = (
    OF_GROUPS | OF_TRANSACTIONS | _READS | {find_coordinator.HANDLER.key, produce.HANDLER.key}
) - {streams_group_heartbeat.HANDLER.key}
"""They do not need what only the coordinator has loaded, or find out at each step whether it is loaded. Some
of them wait for long."""


class LeasedCall(Call):
    """A call whose answer is checked as well: it may come long after the request."""

    __slots__ = ("can_relay", "membership")

    def __init__(self, membership: Membership, can_relay: bool, *context: Any) -> None:
        super().__init__(*context)
        self.membership = membership
        self.can_relay = can_relay

    def require_holder_of(self, group: GroupId) -> None:
        scope = scope_of_group(group)
        if self.broker.holds(scope):
            return
        if self.is_relayed or not self.can_relay:
            raise NotCoordinator(f"the group {group!r} is coordinated by another broker")
        raise NeedsHolder(scope)

    def require_coordinator_of(self, transactional_id: str, *, in_order: bool = False) -> None:
        scope = scope_of_transactional_id(transactional_id)
        if self.broker.holds(scope):
            return
        if in_order or self.is_relayed or not self.can_relay:
            raise NotCoordinator(
                f"the transactional id {transactional_id!r} is coordinated by another broker"
            )
        raise NeedsHolder(scope)

    @property
    def is_relayed(self) -> bool:
        return self.pending.session.relayed_by is not None

    def is_checked_by_holder_of(self, group: GroupId) -> bool:
        relayed_by = self.pending.session.relayed_by
        if relayed_by is None:
            return False
        holder = self.membership.holder_of(scope_of_group(group))
        if holder is None or holder.incarnation != relayed_by:
            raise NotCoordinator(f"the broker that relays it is not known to hold the group {group!r}")
        return True

    async def ask_holder(self, scope: Scope, key: int, request: Message) -> Message:
        api = APIS[key]
        body = api.encode_request(request)
        frame = request_frame(key, api.max_version, self.correlation_id, self.client_id, body)
        sent = memoryview(b"".join(frame))[_LENGTH.size :]
        response = memoryview(await self.pending.relay(scope, sent))
        _, start = decode_response_header(key, api.max_version, response)
        return api.decode_response(response, start)

    def wait_for(self, future: "asyncio.Future[Any]") -> None:
        if self.handler.key not in _NOT_OF_THE_COORDINATOR:
            self.broker.uses_coordination(future)
        super().wait_for(future)

    def fail(self, error: BaseException) -> None:
        if isinstance(error, OperationRefused):
            error = self._of_another_transaction(error)
        if isinstance(error, NeedsHolder):
            answered = self.pending.relay(error.scope)
            answered.add_done_callback(error.answered)
            answered.add_done_callback(self._relayed)
        else:
            super().fail(error)

    def _of_another_transaction(self, error: OperationRefused) -> Exception:
        """Batches of a transaction were refused here. The broker that coordinates it answers for the whole
        request, unless the client expects no response, or this one was to be that broker."""
        request = self.request
        if not isinstance(request, ProduceRequest) or request.transactional_id is None:
            return error
        if request.acks == 0 or self.is_relayed or not self.can_relay:
            return error.reason
        return NeedsHolder(scope_of_transactional_id(request.transactional_id))

    def _relayed(self, answered: "asyncio.Future[bytes]") -> None:
        if answered.cancelled():
            return
        error = answered.exception()
        if error is None:
            self.metrics.seconds.observe(perf_counter() - self.begun)
            response = answered.result()
            self.pending.answer([_LENGTH.pack(len(response)), response])
            return
        self._close_without_response()
        if not isinstance(error, Unavailable):
            log.error("client %s: relaying %s failed", self.pending.peer, self.api.name, exc_info=error)
        self.pending.give_up(f"{self.api.name} cannot be relayed: {error}")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTables:
    """What a broker answers, in one role."""

    everything: Served
    cut_off: Served
    """While it may not serve."""


def coordinator_tables(served: Served) -> ServedTables:
    everything = {
        key: (api, looking_for_topics(handler), metrics) for key, (api, handler, metrics) in served.items()
    }
    reads = {
        key: (api, handler if key in _READS else _refusing(handler), metrics)
        for key, (api, handler, metrics) in everything.items()
    }
    return ServedTables(everything=everything, cut_off=reads)


def _refusing(handler: Handler[Any]) -> Handler[Any]:
    """Clients look for another broker after these codes, and try again. So they do after their connection is
    closed, which answers the first batch of a producer: the next request may be served again."""
    code = ErrorCode.NOT_CONTROLLER
    if handler.key == produce.HANDLER.key:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif handler.key in _OF_COORDINATORS:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE

    def refuse(context: Context, request: Message) -> Message:
        if isinstance(request, ProduceRequest):
            produce.check_begins_no_sequence(request, _REASON)
        raise Refused(code, _REASON)

    return replace(handler, handle=refuse, is_refusing=True)
