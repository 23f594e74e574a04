"""DescribeTransactions: the state and the partitions of transactions."""

from collections import defaultdict

from posthouse.broker.access.operations import Operation
from posthouse.broker.transactions.transaction import Transaction
from posthouse.model.errors import PosthouseError, UnknownTopic
from posthouse.protocols.kafka.codec.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_transactional_id, sees_topic
from posthouse.protocols.kafka.transaction_names import STATE_NAMES

_NOT_STARTED = -1


def handle(context: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(context, id) for id in request.transactional_ids]
    )


def _describe(context: Context, id: str) -> TransactionState:
    try:
        require_on_transactional_id(context, Operation.DESCRIBE, id)
        transaction = context.broker.transactions.get(id)
    except (PosthouseError, Refused) as error:
        return TransactionState(transactional_id=id, error_code=code_of(error))
    return TransactionState(
        transactional_id=id,
        transaction_state=STATE_NAMES[transaction.state],
        transaction_timeout_ms=transaction.shown_timeout_ms,
        transaction_start_time_ms=transaction.work.started_ms if transaction.work else _NOT_STARTED,
        producer_id=transaction.writer.producer_id,
        producer_epoch=transaction.writer.epoch,
        topics=_topics(context, transaction),
    )


def _topics(context: Context, transaction: Transaction) -> list[TopicData]:
    partitions: defaultdict[str, list[int]] = defaultdict(list)
    for partition in transaction.work.partitions if transaction.work else ():
        try:
            partitions[context.broker.topic_by_id(partition.topic).name].append(partition.index)
        except UnknownTopic:
            continue  # deleted since
    return [
        TopicData(topic=name, partitions=sorted(partitions[name]))
        for name in sorted(partitions)
        if sees_topic(context, name)
    ]


def _refuse(
    context: Context, request: DescribeTransactionsRequest, code: ErrorCode, message: str
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=id, error_code=code) for id in request.transactional_ids
        ]
    )


HANDLER = Handler(key=65, handle=handle, refuse=_refuse)
