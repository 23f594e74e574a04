"""AlterPartitionReassignments: the replicas of a partition follow from the live brokers and their racks, and
cannot be chosen."""

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import NotFound
from posthouse.protocols.kafka.codec.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster
from posthouse.protocols.leaders import Replicas


def handle(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    require_on_cluster(context, Operation.ALTER)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[_answered(context, topic) for topic in request.topics],
    )


def _answered(context: Context, wanted: ReassignableTopic) -> ReassignableTopicResponse:
    return ReassignableTopicResponse(
        name=wanted.name,
        partitions=[_reassigned(context, wanted.name, partition) for partition in wanted.partitions],
    )


def _reassigned(context: Context, name: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
    answer = ReassignablePartitionResponse(partition_index=wanted.partition_index)
    try:
        topic = context.broker.topic(name)
        context.broker.partition(topic, wanted.partition_index)
        _check_replicas(wanted.replicas, context.node.replicas(topic)[wanted.partition_index])
    except Refused as error:
        answer.error_code, answer.error_message = error.code, str(error)
    except NotFound as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
    return answer


def _check_replicas(wanted: list[int] | None, replicas: Replicas) -> None:
    """None cancels a running reassignment."""
    if wanted is None:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing is being reassigned")
    if wanted != list(replicas):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the replicas follow from the live brokers and their racks: {list(replicas)}",
        )


def _refuse(
    context: Context, request: AlterPartitionReassignmentsRequest, code: ErrorCode, message: str
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message)


HANDLER = Handler(key=45, handle=handle, refuse=_refuse)
