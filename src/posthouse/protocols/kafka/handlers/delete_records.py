"""DeleteRecords: raises the log start of partitions."""

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import OffsetOutOfRange, PosthouseError
from posthouse.protocols.kafka.codec.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_topic

_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


async def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[await _delete(context, topic.name, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _delete(
    context: Context, name: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=_NO_LOW_WATERMARK
    )
    before = None if wanted.offset == _HIGH_WATERMARK else wanted.offset
    try:
        require_on_topic(context, Operation.DELETE, name)
        if before is not None and before < 0:
            raise OffsetOutOfRange(f"offset {before} is negative")
        topic = await context.broker.find_topic(name)
        if topic.config.is_compacted and not topic.config.is_deleted:
            raise Refused(
                ErrorCode.POLICY_VIOLATION, f"{name!r} is compacted: it keeps the latest record of each key"
            )
        # The permission alone would read as if the topic had been deleted.
        end = "its end" if before is None else before
        context.guard.note(
            "delete-records", f"topic:{name}", f"of partition {wanted.partition_index} before {end}"
        )
        result.low_watermark = await context.broker.delete_records(topic, wanted.partition_index, before)
    except (PosthouseError, Refused) as error:
        result.error_code = code_of(error)
    return result


def _refuse(
    context: Context, request: DeleteRecordsRequest, code: ErrorCode, message: str
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=each.partition_index, low_watermark=_NO_LOW_WATERMARK, error_code=code
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(key=21, handle=handle, refuse=_refuse)
