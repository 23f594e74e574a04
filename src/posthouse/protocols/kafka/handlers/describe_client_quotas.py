"""DescribeClientQuotas: the quotas that match a filter of users and client ids."""

from enum import IntEnum

from posthouse.broker.access.operations import Operation
from posthouse.broker.access.quotas import DEFAULT, Entity
from posthouse.protocols.kafka.codec.generated.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster
from posthouse.protocols.kafka.quota_entities import USER, check_type, parts_of


class Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Any name, or the default."""


_MATCHES = frozenset(map(int, Match))


def handle(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    require_on_cluster(context, Operation.DESCRIBE_CONFIGS)
    _check(request.components)
    entries = []
    for entity, rates in context.broker.access.quotas:
        if _is_wanted(request, entity):
            entry = EntryData(values=[ValueData(key=name, value=rate) for name, rate in rates.items()])
            entry.entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in parts_of(entity)]
            entries.append(entry)
    return DescribeClientQuotasResponse(entries=entries)


def _check(components: list[ComponentData]) -> None:
    known: set[str] = set()
    for each in components:
        check_type(each.entity_type, known)
        known.add(each.entity_type)
        if each.match_type not in _MATCHES:
            raise Refused(ErrorCode.INVALID_REQUEST, f"there is no match of type {each.match_type}")
        if (each.match is not None) != (each.match_type == Match.EXACT):
            raise Refused(ErrorCode.INVALID_REQUEST, "a name belongs to an exact match, and to no other")


def _is_wanted(request: DescribeClientQuotasRequest, entity: Entity) -> bool:
    if request.strict and len(parts_of(entity)) != len(request.components):
        return False
    return all(_matches(each, entity) for each in request.components)


def _matches(component: ComponentData, entity: Entity) -> bool:
    who = entity.user if component.entity_type == USER else entity.client
    if component.match_type == Match.EXACT:
        return who == component.match
    if component.match_type == Match.DEFAULT:
        return who is DEFAULT
    return who is not None


def _refuse(
    context: Context, request: DescribeClientQuotasRequest, code: ErrorCode, message: str
) -> DescribeClientQuotasResponse:
    response = DescribeClientQuotasResponse(error_code=code, error_message=message)
    response.entries = None
    return response


HANDLER = Handler(key=48, handle=handle, refuse=_refuse)
