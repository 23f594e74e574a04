"""EndTogether, a Posthouse extension: ends the transactions of several producers in one step."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.transactions.commit_sets import CommitPart
from posthouse.broker.transactions.transaction import ProducerIdentity
from posthouse.protocols.kafka.codec.own.end_together import (
    ABORT,
    COMMIT,
    NO_SEQUENCE,
    QUERY,
    EndTogetherMember,
    EndTogetherRequest,
    EndTogetherResponse,
)
from posthouse.protocols.kafka.coordinator_codes import coordinator_code
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_transactional_id


async def handle(context: Context, request: EndTogetherRequest) -> EndTogetherResponse:
    context.require_coordinator_of(f"{request.name}/")
    _check_permission(context, request)
    together = context.broker.transactions.commit_sets
    if request.sequence < NO_SEQUENCE:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{request.sequence} is not a sequence number")
    sequence = None if request.sequence == NO_SEQUENCE else request.sequence
    has_ended = False
    if request.action == COMMIT:
        if request.members is None:
            raise Refused(ErrorCode.INVALID_REQUEST, "a commit must list its transactions")
        has_ended = await together.commit(request.name, sequence, list(map(_part, request.members)))
    elif request.action == ABORT:
        parts = None if request.members is None else list(map(_part, request.members))
        await together.abort(request.name, parts, sequence)
        has_ended = True
    elif request.action != QUERY:
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no action {request.action}")
    known = together.sequence(request.name)
    return EndTogetherResponse(has_ended=has_ended, sequence=NO_SEQUENCE if known is None else known)


def _check_permission(context: Context, request: EndTogetherRequest) -> None:
    """The name covers every transaction under it, also those that the request does not list."""
    operation = Operation.DESCRIBE if request.action == QUERY else Operation.WRITE
    require_on_transactional_id(context, operation, request.name)
    for member in request.members or ():
        require_on_transactional_id(context, operation, member.transactional_id)


def _part(member: EndTogetherMember) -> CommitPart:
    producer = ProducerIdentity(member.producer_id, member.producer_epoch)
    return CommitPart(id=member.transactional_id, producer=producer)


def _refuse(
    context: Context, request: EndTogetherRequest, code: ErrorCode, message: str
) -> EndTogetherResponse:
    return EndTogetherResponse(
        error_code=coordinator_code(code, knows_fenced=True), error_message=message, sequence=NO_SEQUENCE
    )


HANDLER = Handler(key=10_000, handle=handle, refuse=_refuse)
