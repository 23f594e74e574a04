"""AlterClientQuotas: sets quotas of users and client ids."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.access.quotas import Entity, Quota
from posthouse.model.errors import PosthouseError
from posthouse.protocols.kafka.codec.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
    ResponseEntryData,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster
from posthouse.protocols.kafka.quota_entities import entity_of, parts_of

_QUOTAS = frozenset(map(str, Quota))


async def handle(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    require_on_cluster(context, Operation.ALTER_CONFIGS)
    return AlterClientQuotasResponse(
        entries=[await _altered(context, entry, request.validate_only) for entry in request.entries]
    )


async def _altered(context: Context, wanted: RequestEntryData, validate_only: bool) -> ResponseEntryData:
    answer = ResponseEntryData(entity=_echo(wanted.entity))
    try:
        entity = entity_of(wanted.entity)
        changes = _changes(wanted.ops)
        await context.broker.access.quotas.change(entity, changes, validate_only=validate_only)
    except (PosthouseError, Refused) as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
    else:
        if not validate_only:
            context.guard.note("alter-quota", _resource(entity), _told(changes))
    return answer


def _changes(ops: list[OpData]) -> dict[Quota, float | None]:
    changes: dict[Quota, float | None] = {}
    for op in ops:
        if op.key not in _QUOTAS:
            raise Refused(ErrorCode.INVALID_REQUEST, f"there is no quota {op.key!r}")
        if op.key in changes:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{op.key} is changed more than once")
        changes[Quota(op.key)] = None if op.remove else op.value
    return changes


def _echo(entity: list[EntityData]) -> list[EntityData]:
    return [EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entity]


def _resource(entity: Entity) -> str:
    names = (f"{kind}={'default' if name is None else repr(name)}" for kind, name in parts_of(entity))
    return f"quota:{','.join(names)}"


def _told(changes: dict[Quota, float | None]) -> str:
    return ", ".join(f"{name}={'none' if rate is None else rate}" for name, rate in changes.items())


def _refuse(
    context: Context, request: AlterClientQuotasRequest, code: ErrorCode, message: str
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(error_code=code, error_message=message, entity=_echo(entry.entity))
            for entry in request.entries
        ]
    )


HANDLER = Handler(key=49, handle=handle, refuse=_refuse)
