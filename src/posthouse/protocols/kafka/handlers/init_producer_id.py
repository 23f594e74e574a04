"""InitProducerId: assigns the producer id and epoch that idempotent and transactional batches carry.

Version 6 is for two-phase commits (KIP-939): the transactions of the producer have no timeout, and one that
is open may be kept, to be committed or aborted by this producer.
"""

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.transactions.producer_starts import NewProducer
from posthouse.broker.transactions.transaction import NO_PRODUCER, ProducerIdentity
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
    if request.enable2_pc and request.transactional_id is not None:
        require_on_transactional_id(context, Operation.TWO_PHASE_COMMIT, request.transactional_id)
    if request.transactional_id == "":
        raise Refused(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
    if (request.producer_id == _NO_PRODUCER_ID) != (request.producer_epoch == _NO_EPOCH):
        raise Refused(ErrorCode.INVALID_REQUEST, "a producer id and its epoch must be sent together")
    if request.transactional_id is None and (request.enable2_pc or request.keep_prepared_txn):
        raise Refused(ErrorCode.INVALID_REQUEST, "a two-phase commit needs a transactional id")
    expected = None
    if request.producer_id != _NO_PRODUCER_ID:
        expected = ProducerIdentity(request.producer_id, request.producer_epoch)
    owner = context.guard.principal.name
    if request.transactional_id is not None and request.keep_prepared_txn:
        resumed = await transactions.resume_producer(
            NewProducer(
                id=request.transactional_id,
                timeout_ms=request.transaction_timeout_ms,
                expected=expected,
                owner=owner,
                is_two_phase=request.enable2_pc,
            )
        )
        prepared = resumed.prepared or NO_PRODUCER
        return InitProducerIdResponse(
            producer_id=resumed.producer.producer_id,
            producer_epoch=resumed.producer.epoch,
            ongoing_txn_producer_id=prepared.producer_id,
            ongoing_txn_producer_epoch=prepared.epoch,
        )
    producer = await transactions.init_producer(
        request.transactional_id,
        request.transaction_timeout_ms,
        expected,
        owner,
        two_phase=request.enable2_pc,
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
