"""InitProducerId: assigns the producer id and epoch that idempotent and transactional batches carry."""

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.protocols.kafka.codec.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from posthouse.protocols.kafka.coordinator_codes import coordinator_code
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import forbidden, require_on_transactional_id

_FIRST_WITH_FENCED = 4
_NO_PRODUCER_ID = -1
_NO_EPOCH = -1


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    transactions = context.broker.transactions
    if request.transactional_id is not None:
        context.require_coordinator_of(request.transactional_id)
    elif transactions.producer_ids.awaits_secret:
        context.require_coordinator()
    _check_permission(context, request.transactional_id)
    if request.transactional_id == "":
        raise Refused(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    if (request.producer_id == _NO_PRODUCER_ID) != (request.producer_epoch == _NO_EPOCH):
        raise Refused(ErrorCode.INVALID_REQUEST, "a producer id and its epoch must be sent together")
    expected = None
    if request.producer_id != _NO_PRODUCER_ID:
        expected = ProducerIdentity(request.producer_id, request.producer_epoch)
    producer = await transactions.init_producer(
        request.transactional_id,
        request.transaction_timeout_ms,
        expected,
        owner=context.guard.principal.name,
    )
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _check_permission(context: Context, transactional_id: str | None) -> None:
    """Permission to write to any topic includes idempotent writes."""
    guard = context.guard
    if transactional_id is not None:
        require_on_transactional_id(context, Operation.WRITE, transactional_id)
    elif not (
        guard.may(Operation.IDEMPOTENT_WRITE, Kind.CLUSTER, CLUSTER)
        or guard.allows_some(Operation.WRITE, Kind.TOPIC)
    ):
        raise forbidden(Operation.IDEMPOTENT_WRITE, Kind.CLUSTER)


def _refuse(
    context: Context, request: InitProducerIdRequest, code: ErrorCode, message: str
) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=coordinator_code(code, knows_fenced=context.version >= _FIRST_WITH_FENCED),
        producer_id=_NO_PRODUCER_ID,
        producer_epoch=_NO_EPOCH,
    )


HANDLER = Handler(key=22, handle=handle, refuse=_refuse)
