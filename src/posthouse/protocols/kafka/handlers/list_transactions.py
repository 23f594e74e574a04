"""ListTransactions: the transactions of this broker that match the request's filters."""

from posthouse.broker.access.operations import Kind
from posthouse.broker.groups.patterns import TopicPattern
from posthouse.broker.transactions.transaction import Transaction
from posthouse.model.errors import CoordinatorLoading
from posthouse.protocols.kafka.codec.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.transaction_names import KNOWN_STATES, STATE_NAMES


def handle(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    if context.broker.transactions.is_loading:
        raise CoordinatorLoading("some transactional ids are being loaded; try again in a moment")
    pattern = TopicPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    now = context.broker.now_ms()
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in KNOWN_STATES],
        transaction_states=[
            TransactionState(
                transactional_id=each.id,
                producer_id=each.writer.producer_id,
                transaction_state=STATE_NAMES[each.state],
            )
            for each in context.broker.transactions.coordinated()
            if _is_wanted(each, request, now)
            and (pattern is None or pattern.matches(each.id))
            and context.guard.sees(Kind.TRANSACTIONAL_ID, each.id)
        ],
    )


def _is_wanted(transaction: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    states, producers = request.state_filters, request.producer_id_filters
    if states and STATE_NAMES[transaction.state] not in states:
        return False
    if producers and transaction.writer.producer_id not in producers:
        return False
    if request.duration_filter < 0:
        return True
    return transaction.work is not None and now_ms - transaction.work.started_ms > request.duration_filter


def _refuse(
    context: Context, request: ListTransactionsRequest, code: ErrorCode, message: str
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)


HANDLER = Handler(key=66, handle=handle, refuse=_refuse)
