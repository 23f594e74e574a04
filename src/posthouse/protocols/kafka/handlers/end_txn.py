"""EndTxn: commit or abort."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.transactions.requests import TransactionalRequest
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.protocols.kafka.codec.generated.end_txn import EndTxnRequest, EndTxnResponse
from posthouse.protocols.kafka.coordinator_codes import coordinator_code
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_transactional_id

_FIRST_WITH_FENCED = 2
_FIRST_WITH_NEW_EPOCH = 5


async def handle(context: Context, request: EndTxnRequest) -> EndTxnResponse:
    epoch_per_transaction = context.version >= _FIRST_WITH_NEW_EPOCH
    context.require_coordinator_of(request.transactional_id, in_order=not epoch_per_transaction)
    require_on_transactional_id(context, Operation.WRITE, request.transactional_id)
    member = TransactionalRequest(
        id=request.transactional_id,
        producer=ProducerIdentity(request.producer_id, request.producer_epoch),
        origin=context.origin,
        epoch_per_transaction=epoch_per_transaction,
    )
    producer = await context.broker.transactions.end(member, commit=request.committed)
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _refuse(context: Context, request: EndTxnRequest, code: ErrorCode, message: str) -> EndTxnResponse:
    knows_fenced = context.version >= _FIRST_WITH_FENCED
    return EndTxnResponse(
        error_code=coordinator_code(code, knows_fenced=knows_fenced), producer_id=-1, producer_epoch=-1
    )


HANDLER = Handler(key=26, handle=handle, refuse=_refuse)
