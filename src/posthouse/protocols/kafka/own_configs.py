"""Changes to settings of topics, groups, the broker and metrics subscriptions."""

from collections.abc import Callable, Mapping, Sequence

from posthouse.broker.access.operations import Operation
from posthouse.broker.dynamic_settings import SettingScope
from posthouse.broker.telemetry.subscriptions import SUBSCRIPTION_KEYS, MetricsSubscriptions
from posthouse.model.errors import InvalidConfig
from posthouse.model.ids import GroupId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.broker_configs import DYNAMIC, kept_dynamic, shown_dynamic
from posthouse.protocols.kafka.codec.generated.incremental_alter_configs import AlterableConfig
from posthouse.protocols.kafka.config_resources import (
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    ConfigType,
    ResourceType,
    Synonym,
    check_alterable,
    check_broker_name,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context
from posthouse.protocols.kafka.permissions import require_on_configured

_POLICY = "log.cleanup.policy"
OWN_LISTS = frozenset({"match", "metrics", _POLICY})
"""Settings that are lists: clients can append and subtract elements."""

Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""From the current overrides of a resource to all new ones."""


async def alter_resource(
    context: Context,
    resource_type: int,
    name: str,
    keys: Sequence[str],
    *,
    own: Change,
    of_topic: Callable[[Topic], dict[str, str]],
    validate_only: bool,
) -> None:
    """Change settings, the named `keys`, of one resource: a topic by `of_topic`, any other by `own`.

    Raises PosthouseError or Refused.
    """
    require_on_configured(context, Operation.ALTER_CONFIGS, resource_type, name)
    check_alterable(resource_type, keys)
    if resource_type == ResourceType.TOPIC:
        await context.broker.configure_topic(name, of_topic, validate_only=validate_only)
    else:
        await _change_own(context, resource_type, name, own, validate_only=validate_only)


async def _change_own(
    context: Context, resource_type: int, name: str, change: Change, *, validate_only: bool
) -> None:
    if resource_type == ResourceType.GROUP:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "groups have no settings in common: name one")
        await context.broker.group_configs.change(GroupId(name), change, validate_only=validate_only)
    elif resource_type == ResourceType.BROKER:
        await _change_broker(context, name, change, validate_only=validate_only)
    elif resource_type == ResourceType.CLIENT_METRICS:
        await context.broker.metrics_subscriptions.change(name, change, validate_only=validate_only)


async def _change_broker(context: Context, name: str, change: Change, *, validate_only: bool) -> None:
    check_broker_name(name, context.node)
    dynamic = context.broker.dynamic_settings

    def changed(kept: Mapping[str, str]) -> dict[str, str]:
        own = shown_dynamic(kept)
        # Elements are appended to the effective list, whatever its source is.
        before = {_POLICY: dynamic.value(DYNAMIC[_POLICY].name)} | own
        wanted = dict(change(before))
        if _POLICY not in own and wanted.get(_POLICY) == before[_POLICY]:
            del wanted[_POLICY]
        return kept_dynamic(wanted)

    scope = SettingScope.NODE if name else SettingScope.CLUSTER
    try:
        await dynamic.change(scope, changed, validate_only=validate_only)
    except InvalidConfig as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None  # the code that Kafka uses for brokers


def changed_own(configs: Sequence[AlterableConfig], overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides after single settings are set, deleted, or changed as lists."""
    changed = dict(overrides)
    for config in configs:
        name, value, operation = config.name, config.value, config.config_operation
        if operation == ConfigOperation.DELETE:
            changed.pop(name, None)
        elif operation not in (ConfigOperation.SET, ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
            raise Refused(ErrorCode.INVALID_REQUEST, f"unknown operation {operation}")
        elif value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"setting {name!r} has no value")
        elif operation == ConfigOperation.SET:
            changed[name] = value
        elif name not in OWN_LISTS:
            raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is not a list: it can be set or deleted")
        else:
            current, given = _items(changed.get(name, "")), _items(value)
            more = [item for item in given if item not in current]
            less = [item for item in current if item not in given]
            changed[name] = ",".join(current + more if operation == ConfigOperation.APPEND else less)
    return changed


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def describe_subscription(subscriptions: MetricsSubscriptions, name: str) -> list[ConfigEntry]:
    """The settings of a subscription to clients' metrics; the defaults if it does not exist."""
    own = subscriptions.own.get(name)
    return [_described(key, own.get(key), default, doc) for key, (default, doc) in SUBSCRIPTION_KEYS.items()]


def _described(key: str, own: str | None, default: str, doc: str) -> ConfigEntry:
    source = ConfigSource.DEFAULT if own is None else ConfigSource.CLIENT_METRICS
    return ConfigEntry(
        name=key,
        value=default if own is None else own,
        type=ConfigType.INT if key == "interval.ms" else ConfigType.LIST,
        source=source,
        read_only=False,
        doc=doc,
        synonyms=() if own is None else (Synonym(name=key, value=own, source=source),),
    )
