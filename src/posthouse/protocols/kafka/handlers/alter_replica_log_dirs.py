"""AlterReplicaLogDirs: there is one directory, which has every partition already."""

from collections import defaultdict
from collections.abc import Callable
from functools import partial

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import NotFound
from posthouse.protocols.kafka.codec.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from posthouse.protocols.kafka.errors import ErrorCode, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.log_dirs import log_dir
from posthouse.protocols.kafka.permissions import require_on_cluster


def handle(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    require_on_cluster(context, Operation.ALTER)
    return _response(request, partial(_moved, context))


def _moved(context: Context, path: str, topic: str, index: int) -> ErrorCode:
    if path != log_dir(context.broker.settings):
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        context.broker.partition(context.broker.topic(topic), index)
    except NotFound as error:
        return code_of(error)
    return ErrorCode.NONE


def _response(
    request: AlterReplicaLogDirsRequest, outcome: Callable[[str, str, int], ErrorCode]
) -> AlterReplicaLogDirsResponse:
    results: defaultdict[str, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    for wanted in request.dirs:
        for topic in wanted.topics:
            results[topic.name] += [
                AlterReplicaLogDirPartitionResult(
                    partition_index=index, error_code=outcome(wanted.path, topic.name, index)
                )
                for index in topic.partitions
            ]
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ]
    )


def _refuse(
    context: Context, request: AlterReplicaLogDirsRequest, code: ErrorCode, message: str
) -> AlterReplicaLogDirsResponse:
    return _response(request, lambda path, topic, index: code)


HANDLER = Handler(key=34, handle=handle, refuse=_refuse)
