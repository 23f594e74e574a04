"""AlterConfigs: replaces all overrides of a topic, a group or the broker."""

from posthouse.model.errors import PosthouseError
from posthouse.protocols.kafka.codec.generated.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.own_configs import alter_resource
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
    configs = resource.configs
    try:
        await alter_resource(
            context,
            resource.resource_type,
            resource.resource_name,
            [config.name for config in configs],
            own=lambda _: _given(configs),
            of_topic=lambda _: kept_overrides(_given(configs)),
            validate_only=validate_only,
        )
    except (PosthouseError, Refused) as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
    return answer


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
