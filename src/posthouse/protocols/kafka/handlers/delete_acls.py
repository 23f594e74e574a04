"""DeleteAcls: removes the ACLs that match one of several filters."""

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.protocols.kafka.acl_codes import AclFilter, coded
from posthouse.protocols.kafka.codec.generated.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import check_enforced, require_on_cluster


async def handle(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    check_enforced(context)
    require_on_cluster(context, Operation.ALTER)
    return DeleteAclsResponse(filter_results=[await _deleted(context, each) for each in request.filters])


async def _deleted(context: Context, wanted: DeleteAclsFilter) -> DeleteAclsFilterResult:
    try:
        removed = await context.broker.access.acls.remove(AclFilter(wanted).matches)
    except (PosthouseError, Refused) as error:
        return DeleteAclsFilterResult(error_code=code_of(error), error_message=str(error))
    for acl in removed:
        context.guard.note("delete-acl", acl.resource, acl.rule)
    return DeleteAclsFilterResult(matching_acls=[_described(acl) for acl in removed])


def _described(acl: Acl) -> DeleteAclsMatchingAcl:
    codes = coded(acl)
    return DeleteAclsMatchingAcl(
        resource_type=codes.resource_type,
        resource_name=acl.name,
        pattern_type=codes.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=codes.operation,
        permission_type=codes.permission_type,
    )


def _refuse(
    context: Context, request: DeleteAclsRequest, code: ErrorCode, message: str
) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters
        ]
    )


HANDLER = Handler(key=31, handle=handle, refuse=_refuse)
