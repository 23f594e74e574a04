"""DescribeAcls: the ACLs that match a filter, by resource."""

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Operation
from posthouse.protocols.kafka.acl_codes import AclFilter, coded
from posthouse.protocols.kafka.codec.generated.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import check_enforced, require_on_cluster


def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    check_enforced(context)
    require_on_cluster(context, Operation.DESCRIBE)
    wanted = AclFilter(request)
    resources: dict[tuple[int, int, str], DescribeAclsResource] = {}
    for acl in context.broker.access.acls:
        if wanted.matches(acl):
            _resource(resources, acl).acls.append(_described(acl))
    return DescribeAclsResponse(resources=list(resources.values()))


def _resource(resources: dict[tuple[int, int, str], DescribeAclsResource], acl: Acl) -> DescribeAclsResource:
    codes = coded(acl)
    key = (codes.resource_type, codes.pattern_type, acl.name)
    resource = resources.get(key)
    if resource is None:
        resource = resources[key] = DescribeAclsResource(
            resource_type=codes.resource_type, resource_name=acl.name, pattern_type=codes.pattern_type
        )
    return resource


def _described(acl: Acl) -> AclDescription:
    codes = coded(acl)
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=codes.operation,
        permission_type=codes.permission_type,
    )


def _refuse(
    context: Context, request: DescribeAclsRequest, code: ErrorCode, message: str
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=code, error_message=message)


HANDLER = Handler(key=29, handle=handle, refuse=_refuse)
