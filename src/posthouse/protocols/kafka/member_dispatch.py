"""Dispatch in a member of a cluster: it serves logs, and the groups and transactional ids whose scopes it
holds. All other requests are relayed to the coordinator, most of them without being decoded here.
"""

import asyncio
from copy import copy
from dataclasses import replace
from typing import Any

from posthouse.model.scopes import COORDINATOR
from posthouse.protocols.kafka.call import Call
from posthouse.protocols.kafka.codec.generated.describe_configs import DescribeConfigsRequest
from posthouse.protocols.kafka.codec.generated.describe_log_dirs import DescribeLogDirsResponse
from posthouse.protocols.kafka.codec.headers import API_VERSIONS_KEY
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.codec.registry import Api
from posthouse.protocols.kafka.config_resources import ResourceType
from posthouse.protocols.kafka.errors import ErrorCode, NeedsHolder, Refused
from posthouse.protocols.kafka.handler import Answer, Context, Handler
from posthouse.protocols.kafka.handlers import (
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    init_producer_id,
    key_places,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    renew_hold,
    sasl_authenticate,
    sasl_handshake,
    segment_manifest,
    write_txn_markers,
)
from posthouse.protocols.kafka.leased_dispatch import OF_GROUPS, OF_TRANSACTIONS, LeasedCall, ServedTables

LOCAL = (
    OF_GROUPS
    | OF_TRANSACTIONS
    | {
        API_VERSIONS_KEY,
        create_topics.HANDLER.key,
        delete_records.HANDLER.key,
        delete_topics.HANDLER.key,
        describe_cluster.HANDLER.key,
        describe_topic_partitions.HANDLER.key,
        fetch.HANDLER.key,
        find_coordinator.HANDLER.key,
        key_places.HANDLER.key,
        list_offsets.HANDLER.key,
        metadata.HANDLER.key,
        offset_for_leader_epoch.HANDLER.key,
        produce.HANDLER.key,
        renew_hold.HANDLER.key,
        sasl_authenticate.HANDLER.key,
        sasl_handshake.HANDLER.key,
        segment_manifest.HANDLER.key,
        write_txn_markers.HANDLER.key,
    }
)
"""The APIs that a member answers itself. Their handlers use nothing that only the coordinator has loaded;
some call `Context.require_coordinator` or `require_coordinator_of` for requests that need it."""


_RELAYED_CUT_OFF = {
    create_topics.HANDLER.key,
    delete_records.HANDLER.key,
    delete_topics.HANDLER.key,
    init_producer_id.HANDLER.key,
}
"""A member that is cut off from the database cannot do these itself, the coordinator may."""


def _of_coordinator(handler: Handler[Any], nothing: type[Message]) -> Handler[Any]:
    def handle(context: Context, request: Message) -> Message:
        if context.node.coordinator() is None:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is the coordinator")
        return nothing()

    return replace(handler, handle=handle)


LISTED_BY_COORDINATOR = {
    describe_log_dirs.HANDLER.key: _of_coordinator(describe_log_dirs.HANDLER, DescribeLogDirsResponse),
}
"""A member lists nothing of these: clients ask all brokers, and some would show an entry as often as they are
told of it. The partitions are in the log directory of the coordinator."""


def _describe_configs(context: Context, request: DescribeConfigsRequest) -> Answer:
    own = str(context.node.id)
    for each in request.resources:
        if each.resource_type != ResourceType.BROKER or each.resource_name != own:
            context.require_coordinator()
    return _describe_own_configs(context, request)


async def _describe_own_configs(context: Context, request: DescribeConfigsRequest) -> Message:
    """The coordinator may have changed them a moment ago, for the same client."""
    await context.broker.refresh_definitions()
    return describe_configs.handle(context, request)


class MemberCall(LeasedCall):
    """Begun while this broker was not the coordinator. What needs that one is relayed, also if this broker
    has become it meanwhile."""

    __slots__ = ()

    def wait_for(self, future: "asyncio.Future[Any]") -> None:
        Call.wait_for(self, future)

    def require_coordinator(self) -> None:
        raise NeedsHolder(COORDINATOR)


def member_tables(coordinators: ServedTables) -> ServedTables:
    """`coordinators` are those of the coordinator."""
    everything = coordinators.everything
    relayed = {
        key: (_undecoded(api), _relayed(handler), metrics)
        for key, (api, handler, metrics) in everything.items()
        if key not in LOCAL and key not in LISTED_BY_COORDINATOR
    }
    relayed_cut_off = {
        key: (_undecoded(api), _relayed(handler), metrics)
        for key, (api, handler, metrics) in everything.items()
        if key in _RELAYED_CUT_OFF
    }
    listed = {
        key: (api, LISTED_BY_COORDINATOR[key], metrics)
        for key, (api, _, metrics) in everything.items()
        if key in LISTED_BY_COORDINATOR
    }
    key = describe_configs.HANDLER.key
    api, handler, metrics = everything[key]
    relayed[key] = (api, replace(handler, handle=_describe_configs), metrics)
    return ServedTables(
        everything=everything | relayed | listed,
        # The coordinator may be well while this broker is cut off.
        cut_off=coordinators.cut_off | relayed | relayed_cut_off,
    )


class _Undecoded(Message):
    __slots__ = ()


_UNDECODED = _Undecoded()


def _undecoded(api: Api) -> Api:
    """The API with a decoder that leaves the request as it is. Its header is checked as that of others."""
    copied = copy(api)
    copied.decode_request = lambda version, frame, pos: _UNDECODED
    return copied


def _relayed(handler: Handler[Any]) -> Handler[Any]:
    return replace(handler, handle=_relay)


def _relay(context: Context, request: Message) -> Message:
    raise NeedsHolder(COORDINATOR)
