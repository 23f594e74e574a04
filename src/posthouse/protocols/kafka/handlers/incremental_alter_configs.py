"""IncrementalAlterConfigs: sets or deletes single settings, or changes lists."""

from functools import partial

from posthouse.model.errors import InvalidConfig, PosthouseError
from posthouse.model.setting_values import ValueKind, items
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from posthouse.protocols.kafka.config_resources import ConfigOperation
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.own_configs import alter_resource, changed_own
from posthouse.protocols.kafka.topic_configs import checked_override, kept_name, text_of, type_of


async def handle(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
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
            own=partial(changed_own, configs),
            of_topic=partial(_changed, configs),
            validate_only=validate_only,
        )
    except (PosthouseError, Refused) as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
    return answer


def _changed(configs: list[AlterableConfig], topic: Topic) -> dict[str, str]:
    overrides = dict(topic.overrides)
    for config in configs:
        if config.config_operation == ConfigOperation.DELETE:
            overrides.pop(kept_name(config.name), None)
            continue
        if config.value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"setting {config.name!r} has no value")
        if config.config_operation == ConfigOperation.SET:
            name, value = checked_override(config.name, config.value)
            overrides[name] = value
        elif config.config_operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            overrides[config.name] = _changed_list(config, topic)
        else:
            raise Refused(ErrorCode.INVALID_REQUEST, f"unknown operation {config.config_operation}")
    return overrides


def _changed_list(config: AlterableConfig, topic: Topic) -> str:
    kind = type_of(config.name)
    if kind is None:
        raise InvalidConfig(f"unknown topic setting {config.name!r}")
    if kind.kind is not ValueKind.LIST:
        raise InvalidConfig(
            f"{config.name} is not a list: it can be set or deleted, not added to or subtracted from"
        )
    current, given = items(text_of(topic, config.name)), items(config.value or "")
    if config.config_operation == ConfigOperation.APPEND:
        return ",".join(current + [item for item in given if item not in current])
    return ",".join(item for item in current if item not in given)


def _refuse(
    context: Context, request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
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


HANDLER = Handler(key=44, handle=handle, refuse=_refuse)
