"""Settings: shown, replaced and changed."""

import asyncio

import pytest

from posthouse.model.inert_settings import INERT_SETTINGS
from posthouse.model.topic_config import CONFIG_KEYS, Durability
from posthouse.protocols.kafka.broker_configs import DYNAMIC
from posthouse.protocols.kafka.codec.generated import alter_configs, incremental_alter_configs
from posthouse.protocols.kafka.codec.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from posthouse.protocols.kafka.codec.generated.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, batch

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(
    wire: Wire, kind: int = TOPIC, name: str = "t", keys: list[str] | None = None
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    [result] = (await wire.ask(request, DescribeConfigsResponse)).results
    return result


async def one(wire: Wire, key: str) -> DescribeConfigsResourceResult:
    [config] = (await describe(wire, keys=[key])).configs
    return config


async def test_all_keys_are_shown(wire: Wire) -> None:
    await wire.create_topic()
    configs = (await describe(wire)).configs
    assert {config.name for config in configs} == set(CONFIG_KEYS) | set(INERT_SETTINGS)
    assert all(config.documentation and config.config_type for config in configs)
    assert not any(config.read_only for config in configs)
    types = {config.name: config.config_type for config in configs}
    assert (types["retention.ms"], types["segment.bytes"], types["cleanup.policy"]) == (5, 3, 7)
    assert (types["message.timestamp.type"], types["preallocate"]) == (2, 1)


async def test_where_a_value_comes_from() -> None:
    async with AsyncBroker(default_durability=Durability.OS) as broker, Wire(broker.kafka) as wire:
        await wire.create_topic(retention_ms="5")
        retention = await one(wire, "retention.ms")
        assert (retention.value, retention.config_source) == ("5", 1)
        assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
            ("retention.ms", "5", 1)
        ]
        durability = await one(wire, "durability")
        assert (durability.value, durability.config_source) == ("os", 4)
        segment = await one(wire, "segment.bytes")
        assert (segment.value, segment.config_source) == ("268435456", 5)


async def test_only_the_keys_asked_for(wire: Wire) -> None:
    await wire.create_topic()
    result = await describe(wire, keys=["retention.ms", "nonsense", "flush.ms"])
    assert [config.name for config in result.configs] == ["flush.ms", "retention.ms"]
    assert (await describe(wire, keys=[])).configs == []


async def test_the_broker(broker: AsyncBroker, wire: Wire) -> None:
    configs = {config.name: config for config in (await describe(wire, BROKER, "1")).configs}
    assert configs["num.partitions"].value == "4"
    assert configs["auto.create.topics.enable"].value == "true"
    assert configs["advertised.listeners"].value == f"PLAINTEXT://{broker.kafka}"
    assert {config.name for config in configs.values() if not config.read_only} == set(DYNAMIC)
    sources = {name: config.config_source for name, config in configs.items()}
    assert {sources[name] for name in ("advertised.listeners", "listeners", "node.id", "log.dirs")} == {4}
    assert (sources["num.partitions"], sources["group.max.size"]) == (5, 5)
    assert (await describe(wire, BROKER, "")).configs == []


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (1, "x", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.NONE),
    ],
)
async def test_others(kind: int, name: str, code: ErrorCode, wire: Wire) -> None:
    assert (await describe(wire, kind, name)).error_code == code


async def replace(
    wire: Wire, kind: int = TOPIC, name: str = "t", validate_only: bool = False, **configs: str | None
) -> int:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            alter_configs.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return (await wire.ask(request, alter_configs.AlterConfigsResponse)).responses[0].error_code


async def change(
    wire: Wire,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    name: str = "t",
    validate_only: bool = False,
) -> tuple[int, str | None]:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    [answer] = (await wire.ask(request, incremental_alter_configs.IncrementalAlterConfigsResponse)).responses
    return answer.error_code, answer.error_message


def overrides(broker: AsyncBroker) -> dict[str, str]:
    return dict(broker.app.broker.topic("t").overrides)


async def test_replace_forgets_the_rest(broker: AsyncBroker, wire: Wire) -> None:
    await wire.create_topic(retention_ms="5", segment_ms="7")
    assert await replace(wire, retention_ms="6", validate_only=True) == 0
    assert overrides(broker) == {"retention.ms": "5", "segment.ms": "7"}
    assert await replace(wire, retention_ms="6", preallocate="true") == 0
    assert overrides(broker) == {"retention.ms": "6", "preallocate": "true"}
    assert (await one(wire, "retention.ms")).value == "6"


async def test_replace_refuses(broker: AsyncBroker, wire: Wire) -> None:
    await wire.create_topic(retention_ms="5")
    assert await replace(wire, retention_ms=None) == ErrorCode.INVALID_REQUEST
    assert await replace(wire, retention_ms="x") == ErrorCode.INVALID_CONFIG
    assert await replace(wire, nonsense="x") == ErrorCode.INVALID_CONFIG
    assert await replace(wire, remote_storage_enable="true") == ErrorCode.INVALID_CONFIG
    assert await replace(wire, name="unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for value in ("x", None):
        answer = await replace(wire, name="unknown", retention_ms=value)
        assert answer == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic comes before its settings"
    assert await replace(wire, BROKER, "1", num_partitions="2") == ErrorCode.INVALID_REQUEST
    assert overrides(broker) == {"retention.ms": "5"}


async def test_change_one_by_one(broker: AsyncBroker, wire: Wire) -> None:
    await wire.create_topic(retention_ms="5", segment_ms="7")
    assert await change(wire, ("retention.ms", SET, "6"), ("segment.ms", DELETE, None)) == (0, None)
    assert overrides(broker) == {"retention.ms": "6"}
    assert await change(wire, ("durability", SET, "os"), validate_only=True) == (0, None)
    assert overrides(broker) == {"retention.ms": "6"}
    assert await change(wire, ("cleanup.policy", APPEND, "delete")) == (0, None)
    assert overrides(broker) == {"retention.ms": "6", "cleanup.policy": "delete"}
    assert await change(wire, ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert broker.app.broker.topic("t").config.text("cleanup.policy") == "compact,delete"
    assert await change(wire, ("cleanup.policy", SET, "delete")) == (0, None)
    assert await change(wire, ("flush.ms", DELETE, None)) == (0, None)
    assert await change(wire, ("nonsense", DELETE, None)) == (0, None), (
        "as in Kafka: it is not set, afterwards"
    )
    assert await change(wire, ("leader.replication.throttled.replicas", SUBTRACT, "*")) == (0, None)


async def test_lists_keep_their_order_and_may_become_empty(broker: AsyncBroker, wire: Wire) -> None:
    await wire.create_topic()
    policy, replicas = "cleanup.policy", "follower.replication.throttled.replicas"
    for changed, shown in (
        ((policy, APPEND, "compact"), "delete,compact"),
        ((policy, SUBTRACT, "delete"), "compact"),
        ((policy, SUBTRACT, "compact"), ""),
        ((policy, SET, "delete, compact"), "delete,compact"),
        ((policy, DELETE, None), "delete"),
        ((replicas, APPEND, "0:1"), "0:1"),
        ((replicas, APPEND, "1:1"), "0:1,1:1"),
        ((replicas, SUBTRACT, "0:1"), "1:1"),
    ):
        assert await change(wire, changed) == (0, None)
        assert (await one(wire, changed[0])).value == shown


async def test_an_empty_policy_keeps_everything(broker: AsyncBroker, wire: Wire) -> None:
    topic = await wire.create_topic(cleanup_policy="", retention_ms="1", retention_bytes="1")
    await wire.produce(topic, batch(b"old", timestamp=1))
    await broker.app.broker.retention.enforce()
    assert broker.app.broker.bounds(broker.app.broker.topic("t"), 0).start == 0


REFUSED = {
    "unknown": (("nonsense", SET, "1"), ErrorCode.INVALID_CONFIG),
    "bad value": (("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
    "no value": (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
    "not a list": (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
    "unknown operation": (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
    "unknown policy": (("cleanup.policy", APPEND, "forget"), ErrorCode.INVALID_CONFIG),
    "untrue": (("remote.storage.enable", SET, "true"), ErrorCode.INVALID_CONFIG),
    "no such list": (("nonsense", APPEND, "*"), ErrorCode.INVALID_CONFIG),
    "a list of another kind": (
        ("follower.replication.throttled.replicas", APPEND, "x"),
        ErrorCode.INVALID_CONFIG,
    ),
}


@pytest.mark.parametrize(("wrong", "code"), REFUSED.values(), ids=REFUSED.keys())
async def test_change_refuses_all(
    wrong: tuple[str, int, str | None], code: ErrorCode, broker: AsyncBroker, wire: Wire
) -> None:
    await wire.create_topic(segment_ms="7")
    answer = await change(wire, ("retention.bytes", SET, "99"), wrong)
    assert answer[0] == code
    assert answer[1]
    assert overrides(broker) == {"segment.ms": "7"}


async def test_change_refuses_a_key_named_twice(wire: Wire) -> None:
    await wire.create_topic()
    twice = [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]
    assert (await change(wire, *twice))[0] == ErrorCode.INVALID_REQUEST


async def test_changes_at_the_same_time_do_not_lose_each_other(broker: AsyncBroker) -> None:
    async with Wire(broker.kafka) as one_wire, Wire(broker.kafka) as other:
        await one_wire.create_topic()
        await asyncio.gather(
            change(one_wire, ("retention.ms", SET, "1")),
            change(other, ("segment.ms", SET, "2")),
        )
        assert overrides(broker) == {"retention.ms": "1", "segment.ms": "2"}


async def test_the_reason_is_told(wire: Wire) -> None:
    await wire.create_topic()
    answer = await change(wire, ("remote.storage.enable", SET, "true"))
    assert answer[1] == (
        "remote.storage.enable=true: there is no remote storage; see retention.local.* and the archive"
    )


async def test_list_resources(wire: Wire) -> None:
    await wire.create_topic("b")
    await wire.create_topic("a")

    async def names(*types: int) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=list(types))
        answer = await wire.ask(request, ListConfigResourcesResponse)
        assert answer.error_code == 0
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert await names(TOPIC) == [(TOPIC, "a"), (TOPIC, "b")]
    assert await names(16) == []
    assert await names() == [(TOPIC, "a"), (TOPIC, "b"), (BROKER, "1")]
    request = ListConfigResourcesRequest(resource_types=[3])
    answer = await wire.ask(request, ListConfigResourcesResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
