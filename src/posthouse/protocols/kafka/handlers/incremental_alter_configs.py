"""IncrementalAlterConfigs: single settings are set, forgotten, or changed as lists."""

from collections.abc import Mapping
from enum import IntEnum
from functools import partial

from posthouse.broker.access.operations import Operation as Permission
from posthouse.model.errors import InvalidConfig, PosthouseError
from posthouse.model.ids import GroupId
from posthouse.model.topic_config import CONFIG_KEYS
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from posthouse.protocols.kafka.config_resources import ResourceType, check_alterable
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_configured
from posthouse.protocols.kafka.topic_configs import FIXED, is_list, kept_overrides


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


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
    try:
        require_on_configured(
            context, Permission.ALTER_CONFIGS, resource.resource_type, resource.resource_name
        )
        check_alterable(resource.resource_type, [config.name for config in resource.configs])
        if resource.resource_type == ResourceType.GROUP:
            configs, group = context.broker.shares.configs, GroupId(resource.resource_name)
            wanted = _changed_group(resource.configs, configs.overrides(group))
            await configs.replace(group, wanted, validate_only=validate_only)
            return answer
        await context.broker.configure_topic(
            resource.resource_name, partial(_changed, resource.configs), validate_only=validate_only
        )
    except (PosthouseError, Refused) as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
    return answer


def _changed(configs: list[AlterableConfig], topic: Topic) -> dict[str, str]:
    overrides = dict(topic.overrides)
    for config in configs:
        name = config.name
        if name not in CONFIG_KEYS and name not in FIXED:
            raise InvalidConfig(f"unknown topic setting {name!r}")
        if config.config_operation == Operation.DELETE:
            overrides.pop(name, None)
            continue
        if config.value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"setting {name!r} has no value")
        if config.config_operation == Operation.SET:
            overrides[name] = config.value
        elif config.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            overrides[name] = _changed_list(config, topic)
        else:
            raise Refused(ErrorCode.INVALID_REQUEST, f"unknown operation {config.config_operation}")
    return kept_overrides(overrides)


def _changed_group(configs: list[AlterableConfig], overrides: Mapping[str, str]) -> dict[str, str]:
    changed = dict(overrides)
    for config in configs:
        if config.config_operation == Operation.DELETE:
            changed.pop(config.name, None)
        elif config.config_operation != Operation.SET:
            raise InvalidConfig(f"{config.name} is not a list: it can be set or deleted")
        elif config.value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"setting {config.name!r} has no value")
        else:
            changed[config.name] = config.value
    return changed


def _changed_list(config: AlterableConfig, topic: Topic) -> str:
    name = config.name
    if not is_list(name):
        raise InvalidConfig(
            f"{name} is not a list: it can be set or deleted, not added to or subtracted from"
        )
    current = _items(FIXED[name].value if name in FIXED else topic.config.text(name))
    given = _items(config.value or "")
    if config.config_operation == Operation.APPEND:
        return ",".join(current + [item for item in given if item not in current])
    return ",".join(item for item in current if item not in given)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


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
