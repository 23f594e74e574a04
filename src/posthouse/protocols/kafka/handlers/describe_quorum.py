"""DescribeQuorum: a quorum of this one node.

There is no shared metadata log; the described log is empty.
"""

from posthouse.broker.access.operations import Operation
from posthouse.protocols.kafka.codec.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster
from posthouse.records.batch import LEADER_EPOCH

_METADATA_TOPIC = "__cluster_metadata"
_METADATA_PARTITION = 0


def handle(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    require_on_cluster(context, Operation.DESCRIBE)
    listener = Listener(name="PLAINTEXT", host=context.node.host, port=context.node.port)
    return DescribeQuorumResponse(
        topics=[_described(context, wanted) for wanted in request.topics],
        nodes=[Node(node_id=context.node.id, listeners=[listener])],
    )


def _described(context: Context, wanted: RequestTopicData) -> ResponseTopicData:
    return ResponseTopicData(
        topic_name=wanted.topic_name,
        partitions=[
            _partition(context, wanted.topic_name, partition.partition_index)
            for partition in wanted.partitions
        ],
    )


def _partition(context: Context, topic: str, index: int) -> ResponsePartitionData:
    if topic != _METADATA_TOPIC or index != _METADATA_PARTITION:
        return ResponsePartitionData(
            partition_index=index,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"a quorum leads partition {_METADATA_PARTITION} of {_METADATA_TOPIC} only",
        )
    now = context.broker.now_ms()
    return ResponsePartitionData(
        partition_index=index,
        leader_id=context.node.id,
        leader_epoch=LEADER_EPOCH,
        current_voters=[
            ReplicaState(replica_id=context.node.id, last_fetch_timestamp=now, last_caught_up_timestamp=now)
        ],
    )


def _refuse(
    context: Context, request: DescribeQuorumRequest, code: ErrorCode, message: str
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=code, error_message=message)


HANDLER = Handler(key=55, handle=handle, refuse=_refuse)
