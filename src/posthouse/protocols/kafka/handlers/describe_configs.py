"""DescribeConfigs: the settings of topics, of groups and of the broker."""

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import GroupId
from posthouse.model.topics import check_topic_name
from posthouse.protocols.kafka.broker_configs import describe_broker, describe_cluster_defaults
from posthouse.protocols.kafka.codec.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from posthouse.protocols.kafka.config_resources import (
    RESOURCE_TYPES,
    ConfigEntry,
    ResourceType,
    check_broker_name,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.group_configs import describe_group
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.own_configs import describe_subscription
from posthouse.protocols.kafka.permissions import require_on_configured
from posthouse.protocols.kafka.topic_configs import describe_topic


def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_described(context, request, resource) for resource in request.resources]
    )


def _described(
    context: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        entries = _entries(context, resource)
    except (PosthouseError, Refused) as error:
        result.error_code, result.error_message = code_of(error), str(error)
        return result
    keys = resource.configuration_keys
    result.configs = [_encoded(request, entry) for entry in entries if keys is None or entry.name in keys]
    return result


def _entries(context: Context, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    name = resource.resource_name
    require_on_configured(context, Operation.DESCRIBE_CONFIGS, resource.resource_type, name)
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        return describe_topic(context.broker.topic(name), context.broker.topics.defaults)
    if resource.resource_type == ResourceType.BROKER:
        check_broker_name(name, context.node)
        if not name:  # the empty name stands for the cluster-wide dynamic settings
            return describe_cluster_defaults(context.broker)
        return describe_broker(context.broker, context.node)
    if resource.resource_type == ResourceType.GROUP:
        return describe_group(context.broker.group_configs, GroupId(name))
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        return describe_subscription(context.broker.metrics_subscriptions, name)
    if resource.resource_type in RESOURCE_TYPES:
        return []
    raise Refused(
        ErrorCode.INVALID_REQUEST, f"there are no settings for resources of type {resource.resource_type}"
    )


def _encoded(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    synonyms = [
        DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
        for synonym in (entry.synonyms if request.include_synonyms else ())
    ]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=synonyms,
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )


def _refuse(
    context: Context, request: DescribeConfigsRequest, code: ErrorCode, message: str
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


HANDLER = Handler(key=32, handle=handle, refuse=_refuse)
