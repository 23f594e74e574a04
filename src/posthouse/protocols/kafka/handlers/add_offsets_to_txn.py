"""AddOffsetsToTxn: announces that a transaction will commit offsets of a group."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.transactions.requests import TransactionalRequest
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.protocols.kafka.codec.generated.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from posthouse.protocols.kafka.coordinator_codes import coordinator_code
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group, require_on_transactional_id

_FIRST_WITH_FENCED = 2


async def handle(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    context.require_coordinator_of(request.transactional_id, in_order=True)
    require_on_transactional_id(context, Operation.WRITE, request.transactional_id)
    require_on_group(context, Operation.READ, request.group_id)
    if not request.group_id:
        raise Refused(ErrorCode.INVALID_GROUP_ID, "a group must have a name")
    member = TransactionalRequest(
        id=request.transactional_id,
        producer=ProducerIdentity(request.producer_id, request.producer_epoch),
        origin=context.origin,
    )
    await context.broker.transactions.add_group(member, request.group_id)
    return AddOffsetsToTxnResponse()


def _refuse(
    context: Context, request: AddOffsetsToTxnRequest, code: ErrorCode, message: str
) -> AddOffsetsToTxnResponse:
    knows_fenced = context.version >= _FIRST_WITH_FENCED
    return AddOffsetsToTxnResponse(error_code=coordinator_code(code, knows_fenced=knows_fenced))


HANDLER = Handler(key=25, handle=handle, refuse=_refuse)
