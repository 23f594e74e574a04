"""ShareFetch: whole batches with records leased to the member, or a wait until there are some.

A member's requests form a session: epoch 0 opens it, -1 ends it, and each request in between names only the
partitions that were added or removed. A request may carry acknowledgements of earlier records.

Members send it to the leaders of partitions. The session is with the broker that holds the group's scope.
"""

from collections.abc import Coroutine
from typing import Any

from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import GroupId, MemberId, PartitionId, TopicId
from posthouse.protocols.kafka.answer_sizes import most_bytes
from posthouse.protocols.kafka.codec.generated.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.fetch_tracing import trace_share_fetch
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.share_groups.sessions import CLOSING, OPENING, ShareSession
from posthouse.protocols.kafka.share_requests import (
    Result,
    acknowledge,
    check_readable,
    failure,
    names,
    partitions,
)

_RECORD_LIMIT = 1
"""The mode in which the number of records is exact."""


def handle(context: Context, request: ShareFetchRequest) -> Coroutine[Any, Any, ShareFetchResponse]:
    group, member = names(context, request.group_id, request.member_id)
    context.require_holder_of(group)
    return _fetch(context, request, group, member)


async def _fetch(
    context: Context, request: ShareFetchRequest, group: GroupId, member: MemberId
) -> ShareFetchResponse:
    groups = context.share_groups
    fetches = request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records
    if request.is_renew_ack and fetches:
        raise Refused(ErrorCode.INVALID_REQUEST, "a request that renews leases cannot fetch records")
    session = _session(context, request, group, member)
    acknowledged = await acknowledge(
        context, group, member, partitions(request.topics), may_renew=request.is_renew_ack
    )
    if request.share_session_epoch == CLOSING:
        groups.end_session(session, count=False)
        return _response(context, group, acknowledged, {}, {})
    if request.is_renew_ack:
        return _response(context, group, acknowledged, {}, {})
    wanted, errors = _readable(context, session)
    tracer = context.broker.tracer
    started = 0 if tracer is None else tracer.now()
    taken = await groups.fetch(session, wanted, _wish(context, request, wait=not errors))
    for partition, result in taken.items():
        if isinstance(result, PosthouseError):
            errors[partition] = failure(context, partition, result)
    found = {partition: each for partition, each in taken.items() if isinstance(each, Taken)}
    if tracer is not None:
        trace_share_fetch(tracer, context, found, started)
    return _response(context, group, acknowledged, errors, found)


def _session(context: Context, request: ShareFetchRequest, group: GroupId, member: MemberId) -> ShareSession:
    groups = context.share_groups
    epoch = request.share_session_epoch
    connection = context.origin.connection
    if epoch == CLOSING:
        return groups.sessions.get(group, member, connection.way)
    if epoch == OPENING:
        if any(batches for _, batches in partitions(request.topics)):
            raise Refused(
                ErrorCode.INVALID_REQUEST, "a request that opens a session cannot carry acknowledgements"
            )
        session = groups.open_session(group, member, connection)
    else:
        session = groups.sessions.follow(group, member, epoch, connection)
    session.change(
        (partition for partition, _ in partitions(request.topics)),
        (
            PartitionId(TopicId(topic.topic_id), index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ),
    )
    return session


def _readable(context: Context, session: ShareSession) -> tuple[list[PartitionId], dict[PartitionId, Result]]:
    """The partitions that exist, and the errors of the others."""
    wanted = []
    errors: dict[PartitionId, Result] = {}
    for partition in session.in_turn():
        try:
            check_readable(context, partition)
            context.broker.partition(context.broker.topic_by_id(partition.topic), partition.index)
            wanted.append(partition)
        except (PosthouseError, Refused) as error:
            errors[partition] = failure(context, partition, error)
    return wanted, errors


def _wish(context: Context, request: ShareFetchRequest, *, wait: bool) -> Wish:
    return Wish(
        max_bytes=min(request.max_bytes, most_bytes(context)),
        min_bytes=request.min_bytes,
        max_records=request.max_records,
        is_strict=request.share_acquire_mode == _RECORD_LIMIT,
        run_size=request.batch_size,
        seconds=request.max_wait_ms / 1000 if wait else 0.0,
    )


def _response(
    context: Context,
    group: GroupId,
    acknowledged: dict[PartitionId, Result],
    errors: dict[PartitionId, Result],
    taken: dict[PartitionId, Taken],
) -> ShareFetchResponse:
    if errors or any(code for code, _ in acknowledged.values()):
        context.count_error()
    topics: dict[TopicId, ShareFetchableTopicResponse] = {}
    for partition in dict.fromkeys((*taken, *errors, *acknowledged)):
        answer = PartitionData(partition_index=partition.index, records=b"")
        if partition in acknowledged:
            answer.acknowledge_error_code, answer.acknowledge_error_message = acknowledged[partition]
        if partition in errors:
            answer.error_code, answer.error_message = errors[partition]
        if partition in taken:
            answer.records = taken[partition].data
            answer.acquired_records = [
                AcquiredRecords(first_offset=run.first, last_offset=run.last, delivery_count=run.deliveries)
                for run in taken[partition].runs
            ]
        topic = topics.setdefault(partition.topic, ShareFetchableTopicResponse(topic_id=partition.topic))
        topic.partitions.append(answer)
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=context.broker.group_configs.get(group).share_record_lock_duration_ms,
        responses=list(topics.values()),
    )


def _refuse(
    context: Context, request: ShareFetchRequest, code: ErrorCode, message: str
) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=code, error_message=message)


HANDLER = Handler(key=78, handle=handle, refuse=_refuse, counts_errors=True)
