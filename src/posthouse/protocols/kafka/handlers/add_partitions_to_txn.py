"""AddPartitionsToTxn: adds partitions to a transaction before it writes to them.

Clients send version 3 and below, for one transaction. Brokers send the later form, for several; with
`verify_only` it checks whether partitions were added.
"""

from collections.abc import Sequence

from posthouse.broker.access.operations import Operation
from posthouse.broker.transactions.requests import TransactionalRequest
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId
from posthouse.protocols.kafka.codec.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from posthouse.protocols.kafka.coordinator_codes import coordinator_code
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import (
    require_on_cluster,
    require_on_topic,
    require_on_transactional_id,
)

_FIRST_WITH_FENCED = 2
_FIRST_OF_BROKERS = 4


async def handle(context: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if context.version < _FIRST_OF_BROKERS:
        context.require_coordinator_of(request.v3_and_below_transactional_id, in_order=True)
        require_on_transactional_id(context, Operation.WRITE, request.v3_and_below_transactional_id)
        only = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _add(context, only))
    require_on_cluster(context, Operation.CLUSTER_ACTION)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=await _add(context, each)
            )
            for each in request.transactions
        ]
    )


async def _add(
    context: Context, wanted: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    """Add all of the partitions, or none."""
    partitions: list[PartitionId] = []
    results = [
        AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=_find(context, topic, partitions))
        for topic in wanted.topics
    ]
    answers = [answer for result in results for answer in result.results_by_partition]
    code = ErrorCode.OPERATION_NOT_ATTEMPTED
    if not any(answer.partition_error_code for answer in answers):
        code = await _add_found(context, wanted, partitions)
    for answer in answers:
        answer.partition_error_code = answer.partition_error_code or code
    return results


def _find(
    context: Context, topic: AddPartitionsToTxnTopic, found: list[PartitionId]
) -> list[AddPartitionsToTxnPartitionResult]:
    results = []
    for index in topic.partitions:
        result = AddPartitionsToTxnPartitionResult(partition_index=index)
        results.append(result)
        try:
            if context.version < _FIRST_OF_BROKERS:
                require_on_topic(context, Operation.WRITE, topic.name)
            found.append(context.broker.partition(context.broker.topic(topic.name), index))
        except (PosthouseError, Refused) as error:
            result.partition_error_code = code_of(error)
    return results


async def _add_found(
    context: Context, wanted: AddPartitionsToTxnTransaction, partitions: Sequence[PartitionId]
) -> ErrorCode:
    member = TransactionalRequest(
        id=wanted.transactional_id,
        producer=ProducerIdentity(wanted.producer_id, wanted.producer_epoch),
        origin=context.origin,
    )
    transactions = context.broker.transactions
    try:
        if wanted.verify_only:
            transactions.check_parts(member, partitions)
        else:
            await transactions.add_partitions(member, partitions)
    except PosthouseError as error:
        return coordinator_code(code_of(error), knows_fenced=context.version >= _FIRST_WITH_FENCED)
    return ErrorCode.NONE


def _refuse(
    context: Context, request: AddPartitionsToTxnRequest, code: ErrorCode, message: str
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        error_code=code,
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ],
    )


HANDLER = Handler(key=24, handle=handle, refuse=_refuse)
