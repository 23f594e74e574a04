"""CreateAcls: adds all valid ACLs of a request in one durable step."""

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.protocols.kafka.acl_codes import acl_of
from posthouse.protocols.kafka.codec.generated.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import check_enforced, require_on_cluster


async def handle(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    check_enforced(context)
    require_on_cluster(context, Operation.ALTER)
    accepted: list[Acl] = []
    results = []
    for creation in request.creations:
        try:
            accepted.append(acl_of(creation))
            results.append(AclCreationResult())
        except (PosthouseError, Refused) as error:
            results.append(AclCreationResult(error_code=code_of(error), error_message=str(error)))
    await context.broker.access.acls.add(accepted)
    for acl in accepted:
        context.guard.note("create-acl", acl.resource, acl.rule)
    return CreateAclsResponse(results=results)


def _refuse(
    context: Context, request: CreateAclsRequest, code: ErrorCode, message: str
) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=message) for _ in request.creations]
    )


HANDLER = Handler(key=30, handle=handle, refuse=_refuse)
