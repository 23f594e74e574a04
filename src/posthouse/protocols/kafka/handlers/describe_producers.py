"""DescribeProducers: the producer state of partitions."""

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.protocols.kafka.codec.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_topic

_NO_SEQUENCE = -1
_NO_COORDINATOR_EPOCH = -1


async def handle(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    await _refresh(context, request)
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(context, topic, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


async def _refresh(context: Context, request: DescribeProducersRequest) -> None:
    """Ask for producers that wrote by other brokers. Partitions that do not exist are refused later."""
    partitions = [
        topic.partition(index)
        for wanted in request.topics
        if (topic := context.broker.topics.find(wanted.name)) is not None
        for index in wanted.partition_indexes
        if 0 <= index < topic.partitions
    ]
    await context.broker.refresh(partitions, with_producers=True)


def _describe(context: Context, topic: TopicRequest, index: int) -> PartitionResponse:
    try:
        require_on_topic(context, Operation.READ, topic.name)
        producers = context.broker.producers(context.broker.topic(topic.name), index)
    except (PosthouseError, Refused) as error:
        return PartitionResponse(partition_index=index, error_code=code_of(error), error_message=str(error))
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=id,
                producer_epoch=each.epoch,
                last_sequence=each.batches[-1].last_sequence if each.batches else _NO_SEQUENCE,
                last_timestamp=each.last_time,
                coordinator_epoch=_NO_COORDINATOR_EPOCH,
                current_txn_start_offset=each.open_since,
            )
            for id, each in producers.items()
        ],
    )


def _refuse(
    context: Context, request: DescribeProducersRequest, code: ErrorCode, message: str
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code, error_message=message)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(key=61, handle=handle, refuse=_refuse)
