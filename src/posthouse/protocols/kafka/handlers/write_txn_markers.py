"""WriteTxnMarkers: an administrator aborts a hanging transaction.

Kafka's brokers also use it to end transactions. Here that is one step inside the broker, so a commit from
outside is refused: it could make only a part of a transaction visible.
"""

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.model.errors import PosthouseError
from posthouse.model.scopes import Scope, scope_of_transactional_id
from posthouse.protocols.kafka.codec.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster


async def handle(context: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Clients send it to the leader of a partition. The coordinator finds the broker that coordinates the
    transaction, and asks that one."""
    if not context.is_relayed:
        context.require_coordinator()
    is_administrator = context.guard.may(Operation.ALTER, Kind.CLUSTER, CLUSTER)
    require_on_cluster(context, Operation.ALTER if is_administrator else Operation.CLUSTER_ACTION)
    return WriteTxnMarkersResponse(markers=[await _end(context, marker) for marker in request.markers])


async def _end(context: Context, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    topics = []
    for topic in marker.topics:
        partitions = [
            WritableTxnMarkerPartitionResult(
                partition_index=index, error_code=await _abort(context, marker, topic.name, index)
            )
            for index in topic.partition_indexes
        ]
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)


async def _abort(context: Context, marker: WritableTxnMarker, name: str, index: int) -> ErrorCode:
    if marker.transaction_result:
        return ErrorCode.INVALID_TXN_STATE
    broker = context.broker
    producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
    try:
        partition = broker.partition(broker.topic(name), index)
        owner = await broker.transactions.owner_of(producer) if broker.coordinates else None
        if owner is not None and not broker.transactions.serves(owner):
            return await _abort_there(context, marker, name, index, scope_of_transactional_id(owner))
        await broker.transactions.abort(producer, partition)
    except PosthouseError as error:
        return code_of(error)
    return ErrorCode.NONE


async def _abort_there(
    context: Context, marker: WritableTxnMarker, name: str, index: int, scope: Scope
) -> ErrorCode:
    """The broker that holds the scope coordinates the transaction."""
    topic = WritableTxnMarkerTopic(name=name, partition_indexes=[index])
    only = WritableTxnMarker(
        producer_id=marker.producer_id, producer_epoch=marker.producer_epoch, topics=[topic]
    )
    response = await context.ask_holder(scope, HANDLER.key, WriteTxnMarkersRequest(markers=[only]))
    assert isinstance(response, WriteTxnMarkersResponse)
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


def _refuse(
    context: Context, request: WriteTxnMarkersRequest, code: ErrorCode, message: str
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


HANDLER = Handler(key=27, handle=handle, refuse=_refuse)
