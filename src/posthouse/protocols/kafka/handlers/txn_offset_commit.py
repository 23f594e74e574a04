"""TxnOffsetCommit: offsets that are committed with the transaction."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.transactions.requests import TransactionalRequest
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import GroupId, InstanceId, MemberId
from posthouse.protocols.kafka.codec.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from posthouse.protocols.kafka.coordinator_codes import coordinator_code
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import (
    require_on_group,
    require_on_transactional_id,
    require_to_commit,
)

_FIRST_THAT_ADDS_THE_GROUP = 5


async def handle(context: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    require_on_transactional_id(context, Operation.WRITE, request.transactional_id)
    require_on_group(context, Operation.READ, request.group_id)
    broker = context.broker
    group = GroupId(request.group_id)
    if not group:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "a group must have a name")
    identity = _identity(request)
    broker.groups.offsets.check_member(group, identity, transactional=True)
    accepted: list[NewOffset] = []
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name, partitions=_accept(context, group, identity, topic, accepted)
        )
        for topic in request.topics
    ]
    member = TransactionalRequest(
        id=request.transactional_id,
        producer=ProducerIdentity(request.producer_id, request.producer_epoch),
        origin=context.origin,
        epoch_per_transaction=context.version >= _FIRST_THAT_ADDS_THE_GROUP,
    )
    await broker.transactions.add_offsets(
        member, request.group_id, broker.groups.offsets.puts(group, accepted)
    )
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
