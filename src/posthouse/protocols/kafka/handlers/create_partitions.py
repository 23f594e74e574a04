"""CreatePartitions: adds partitions to topics."""

from collections import Counter

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.protocols.kafka.codec.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_topic
from posthouse.protocols.kafka.replica_assignments import check_replicas


async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    occurrences = Counter(topic.name for topic in request.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    for wanted in request.topics:
        result = results[wanted.name] = CreatePartitionsTopicResult(name=wanted.name)
        try:
            require_on_topic(context, Operation.ALTER, wanted.name)
            if occurrences[wanted.name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            _check_assignments(context, wanted)
            await context.broker.create_partitions(
                wanted.name, wanted.count, validate_only=request.validate_only
            )
        except (PosthouseError, Refused) as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return CreatePartitionsResponse(results=list(results.values()))


def _check_assignments(context: Context, wanted: CreatePartitionsTopic) -> None:
    if wanted.assignments is None:
        return
    added = wanted.count - context.broker.topic(wanted.name).partitions
    if added <= 0:
        return  # the broker reports that this is not an increase
    if len(wanted.assignments) != added:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{added} partitions are added but {len(wanted.assignments)} are assigned",
        )
    for assignment in wanted.assignments:
        check_replicas(assignment.broker_ids, context.node)


def _refuse(
    context: Context, request: CreatePartitionsRequest, code: ErrorCode, message: str
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


HANDLER = Handler(key=37, handle=handle, refuse=_refuse)
