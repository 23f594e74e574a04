"""ListConfigResources: the names of all resources with settings."""

from posthouse.broker.access.operations import Operation
from posthouse.protocols.kafka.codec.generated.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from posthouse.protocols.kafka.config_resources import RESOURCE_TYPES, ResourceType
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_cluster

_FIRST_WITH_TYPES = 1


def handle(context: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    require_on_cluster(context, Operation.DESCRIBE_CONFIGS)
    # The first version of this API asked for client metrics only.
    is_for_metrics = context.version < _FIRST_WITH_TYPES
    all_types = [ResourceType.CLIENT_METRICS] if is_for_metrics else sorted(RESOURCE_TYPES)
    types = request.resource_types or all_types
    resources = []
    for each in dict.fromkeys(types):
        if each not in RESOURCE_TYPES:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"there are no resources of type {each}")
        resources += [
            ConfigResource(resource_name=name, resource_type=each) for name in _names(context, each)
        ]
    return ListConfigResourcesResponse(config_resources=resources)


def _names(context: Context, resource_type: int) -> list[str]:
    if resource_type == ResourceType.TOPIC:
        return [topic.name for topic in context.broker.topics]
    if resource_type == ResourceType.BROKER:
        return [str(each.id) for each in context.node.all()]
    if resource_type == ResourceType.GROUP:
        return sorted(context.broker.group_configs)
    if resource_type == ResourceType.CLIENT_METRICS:
        return sorted(context.broker.metrics_subscriptions.own)
    return []


def _refuse(
    context: Context, request: ListConfigResourcesRequest, code: ErrorCode, message: str
) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code)


HANDLER = Handler(key=74, handle=handle, refuse=_refuse)
