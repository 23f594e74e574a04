"""DescribeLogDirs: the data directory, and the size of each partition in it."""

import asyncio
import shutil
from collections.abc import Iterable

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import NotFound
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.log_dirs import log_dir
from posthouse.protocols.kafka.permissions import require_on_cluster


async def handle(context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    require_on_cluster(context, Operation.DESCRIBE)
    settings = context.broker.settings
    if request.topics is None:
        topics = [_described(context, topic, range(topic.partitions)) for topic in context.broker.topics]
    else:
        topics = [found for wanted in request.topics if (found := _wanted(context, wanted)) is not None]
    result = DescribeLogDirsResult(log_dir=log_dir(settings))
    result.topics = topics
    if settings.keeps_records_in_data:
        usage = await asyncio.to_thread(shutil.disk_usage, settings.data)
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    return DescribeLogDirsResponse(results=[result])


def _wanted(context: Context, wanted: DescribableLogDirTopic) -> DescribeLogDirsTopic | None:
    """Topics that do not exist are left out, as in Kafka."""
    try:
        topic = context.broker.topic(wanted.topic)
    except NotFound:
        return None
    return _described(context, topic, (index for index in wanted.partitions if 0 <= index < topic.partitions))


def _described(context: Context, topic: Topic, partitions: Iterable[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=[
            DescribeLogDirsPartition(partition_index=index, partition_size=context.broker.size(topic, index))
            for index in partitions
        ],
    )


def _refuse(
    context: Context, request: DescribeLogDirsRequest, code: ErrorCode, message: str
) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=code, results=[DescribeLogDirsResult(error_code=code)])


HANDLER = Handler(key=35, handle=handle, refuse=_refuse)
