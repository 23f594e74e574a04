"""AlterConfigs: replaces all overrides of a topic, a group or the broker."""

from functools import partial

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from posthouse.protocols.kafka.config_resources import ResourceType, check_alterable
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.own_configs import change_own
from posthouse.protocols.kafka.permissions import require_on_configured
from posthouse.protocols.kafka.topic_configs import kept_overrides


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[await _altered(context, resource, request.validate_only) for resource in request.resources]
    )


async def _altered(
    context: Context, resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    answer = AlterConfigsResourceResponse(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        require_on_configured(
            context, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name
        )
        check_alterable(resource.resource_type, [config.name for config in resource.configs])
        if resource.resource_type != ResourceType.TOPIC:
            wanted = _given(resource.configs)
            await change_own(
                context,
                resource.resource_type,
                resource.resource_name,
                lambda _: wanted,
                validate_only=validate_only,
            )
            return answer
        await context.broker.configure_topic(
            resource.resource_name, partial(_replaced, resource.configs), validate_only=validate_only
        )
    except (PosthouseError, Refused) as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
    return answer


def _replaced(configs: list[AlterableConfig], topic: Topic) -> dict[str, str]:
    return kept_overrides(_given(configs))


def _given(configs: list[AlterableConfig]) -> dict[str, str]:
    wanted = {}
    for config in configs:
        if config.value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"setting {config.name!r} has no value")
        wanted[config.name] = config.value
    return wanted


def _refuse(
    context: Context, request: AlterConfigsRequest, code: ErrorCode, message: str
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )


HANDLER = Handler(key=33, handle=handle, refuse=_refuse)
