"""TxnOffsetCommit: offsets that are committed with the transaction.

The broker that holds the group's scope checks the member, and relays the request to the broker that
coordinates the transaction and does not know the group's members.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.groups.offset_reading import OffsetsInFlight
from posthouse.broker.transactions.requests import TransactionalRequest
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.model.errors import MembershipError, PosthouseError
from posthouse.model.ids import GroupId, InstanceId, MemberId
from posthouse.model.scopes import scope_of_transactional_id
from posthouse.protocols.kafka.codec.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from posthouse.protocols.kafka.coordinator_codes import coordinator_code
from posthouse.protocols.kafka.errors import ErrorCode, NeedsHolder, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import (
    require_on_group,
    require_on_transactional_id,
    require_to_commit,
)

_FIRST_THAT_ADDS_THE_GROUP = 5


def handle(context: Context, request: TxnOffsetCommitRequest) -> Coroutine[Any, Any, TxnOffsetCommitResponse]:
    require_on_transactional_id(context, Operation.WRITE, request.transactional_id)
    require_on_group(context, Operation.READ, request.group_id)
    offsets = context.broker.groups.offsets
    group = GroupId(request.group_id)
    if not group:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "a group must have a name")
    identity = _identity(request)
    is_checked = context.is_checked_by_holder_of(group)
    if not is_checked:
        offsets.check_member(group, identity, transactional=True)
    accepted: list[NewOffset] = []
    refused: list[PosthouseError] = []
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name, partitions=_accept(context, group, identity, topic, accepted, refused)
        )
        for topic in request.topics
    ]
    if is_checked or offsets.reading is None:
        return _add(context, request, accepted, topics)
    sent = offsets.reading.begin(group, [each.partition for each in accepted])
    if context.broker.transactions.serves(request.transactional_id):
        return _add_in_flight(sent, _add(context, request, accepted, topics))
    for error in refused:
        if isinstance(error, MembershipError):  # the other broker would not notice
            sent.end(is_answered=True)
            raise error
    scope = scope_of_transactional_id(request.transactional_id)
    raise NeedsHolder(scope, lambda relayed: sent.end(is_answered=_is_answered(relayed)))


def _is_answered(relayed: "asyncio.Future[bytes]") -> bool:
    return not relayed.cancelled() and relayed.exception() is None


async def _add_in_flight(
    sent: OffsetsInFlight, adding: Coroutine[Any, Any, TxnOffsetCommitResponse]
) -> TxnOffsetCommitResponse:
    is_answered = False
    try:
        response = await adding
        is_answered = True
    except PosthouseError:
        is_answered = True
        raise
    finally:  # without an answer the client has left, and the commit may go on
        sent.end(is_answered=is_answered)
    return response


async def _add(
    context: Context,
    request: TxnOffsetCommitRequest,
    accepted: Sequence[NewOffset],
    topics: list[TxnOffsetCommitResponseTopic],
) -> TxnOffsetCommitResponse:
    member = TransactionalRequest(
        id=request.transactional_id,
        producer=ProducerIdentity(request.producer_id, request.producer_epoch),
        origin=context.origin,
        epoch_per_transaction=context.version >= _FIRST_THAT_ADDS_THE_GROUP,
    )
    puts = context.broker.groups.offsets.puts(GroupId(request.group_id), accepted)
    await context.broker.transactions.add_offsets(member, request.group_id, puts)
    return TxnOffsetCommitResponse(topics=topics)


def _identity(request: TxnOffsetCommitRequest) -> MemberIdentity:
    instance = request.group_instance_id
    return MemberIdentity(
        member=MemberId(request.member_id),
        generation=request.generation_id,
        instance=None if instance is None else InstanceId(instance),
    )


def _accept(
    context: Context,
    group: GroupId,
    identity: MemberIdentity,
    wanted: TxnOffsetCommitRequestTopic,
    accepted: list[NewOffset],
    refused: list[PosthouseError],
) -> list[TxnOffsetCommitResponsePartition]:
    answers = []
    for each in wanted.partitions:
        answer = TxnOffsetCommitResponsePartition(partition_index=each.partition_index)
        answers.append(answer)
        try:
            require_to_commit(context, group, wanted.name)
            topic = context.broker.topic(wanted.name)
        except (PosthouseError, Refused) as error:
            answer.error_code = code_of(error)
            continue
        new = NewOffset(
            partition=topic.partition(each.partition_index),
            offset=each.committed_offset,
            leader_epoch=each.committed_leader_epoch,
            metadata=each.committed_metadata or "",
        )
        wrong = context.broker.groups.offsets.wrong_with(new, group, identity)
        if wrong is None:
            accepted.append(new)
        else:
            refused.append(wrong)
            answer.error_code = code_of(wrong)
    return answers


def _refuse(
    context: Context, request: TxnOffsetCommitRequest, code: ErrorCode, message: str
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=coordinator_code(code)
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(key=28, handle=handle, refuse=_refuse)
