"""Settings of the broker that change while it runs: for the node, for the cluster, and what they do."""

from pathlib import Path

import pytest

from posthouse.protocols.kafka.codec.generated.describe_configs import DescribeConfigsResourceResult
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.handlers.test_configs import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    TOPIC,
    change,
    describe,
    one,
    replace,
)
from tests.protocols.kafka.wire import Wire, batch

NODE, CLUSTER = "1", ""
OF_NODE, OF_CLUSTER, STATIC, DEFAULT = 2, 3, 4, 5


async def set_on(wire: Wire, scope: str, name: str, value: str | None, operation: int = SET) -> int:
    return (await change(wire, (name, operation, value), kind=BROKER, name=scope))[0]


async def shown(wire: Wire, name: str, scope: str = NODE) -> DescribeConfigsResourceResult:
    [config] = (await describe(wire, BROKER, scope, [name])).configs
    return config


async def sources(wire: Wire, name: str) -> list[tuple[str | None, int]]:
    return [(each.value, each.source) for each in (await shown(wire, name)).synonyms]


async def test_the_node_counts_before_the_cluster(wire: Wire) -> None:
    name = "log.retention.ms"
    before = await shown(wire, name)
    assert (before.value, before.config_source, before.read_only) == ("604800000", DEFAULT, False)
    assert await set_on(wire, CLUSTER, name, "6000") == 0
    assert await set_on(wire, NODE, name, "7000") == 0
    assert await sources(wire, name) == [("7000", OF_NODE), ("6000", OF_CLUSTER), ("604800000", DEFAULT)]
    assert [each.name for each in (await describe(wire, BROKER, CLUSTER)).configs] == [name]
    assert (await shown(wire, name, CLUSTER)).value == "6000"
    assert await set_on(wire, NODE, name, None, DELETE) == 0
    assert await sources(wire, name) == [("6000", OF_CLUSTER), ("604800000", DEFAULT)]
    assert await set_on(wire, CLUSTER, name, None, DELETE) == 0
    assert await sources(wire, name) == [("604800000", DEFAULT)]


async def test_topics_follow_at_once(broker: AsyncBroker, wire: Wire) -> None:
    topic = await wire.create_topic("t")
    own = await wire.create_topic("own", max_message_bytes="1000000")
    assert await set_on(wire, NODE, "message.max.bytes", "100") == 0
    assert (await one(wire, "max.message.bytes")).value == "100"
    large = batch(bytes(200))
    assert (await wire.produce(topic, large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await wire.produce(own, large)).error_code == 0
    new = await wire.create_topic("new")
    assert (await wire.produce(new, large)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert broker.app.broker._storage.topics[broker.app.broker.topic("t").id].config.max_message_bytes == 100
    assert await set_on(wire, NODE, "message.max.bytes", None, DELETE) == 0
    assert (await wire.produce(topic, large)).error_code == 0


async def test_changes_outlive_a_restart(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        await wire.create_topic("t")
        assert await set_on(wire, CLUSTER, "log.segment.bytes", "1048576") == 0
        assert await set_on(wire, NODE, "log.cleanup.policy", "compact", APPEND) == 0
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        assert (await shown(wire, "log.segment.bytes")).config_source == OF_CLUSTER
        assert (await shown(wire, "log.cleanup.policy")).value == "delete,compact"
        topic = broker.app.broker.topic("t")
        assert topic.config.is_compacted
        assert topic.config.is_deleted
        [owner] = [broker.app.broker._storage._logs[each] for each in topic.partition_ids()]  # type: ignore[attr-defined]
        assert owner.config.segment_bytes == 1_048_576
        assert dict(topic.overrides) == {}


async def test_connections_are_limited_at_once(broker: AsyncBroker, wire: Wire) -> None:
    assert (await shown(wire, "max.connections.per.ip")).value == str(2**31 - 1)
    assert await set_on(wire, NODE, "max.connections.per.ip", "1") == 0
    async with Wire(broker.kafka) as refused:
        assert await refused.reader.read(1) == b""
    assert await set_on(wire, NODE, "max.connections.per.ip", str(2**31 - 1)) == 0
    async with Wire(broker.kafka) as welcome:
        assert (await describe(welcome, BROKER, NODE)).error_code == 0
    assert await set_on(wire, CLUSTER, "max.connections", "1") == 0
    async with Wire(broker.kafka) as refused:
        assert await refused.reader.read(1) == b""


async def test_defaults_of_groups(broker: AsyncBroker, wire: Wire) -> None:
    name = "group.consumer.assignment.interval.ms"
    assert await set_on(wire, NODE, name, "3000") == 0
    assert broker.app.broker.group_configs.defaults.consumer_assignment_interval_ms == 3000
    assert await set_on(wire, NODE, name, "15001") == ErrorCode.INVALID_REQUEST


REFUSED = {
    "fixed": (NODE, "num.partitions", SET, "3"),
    "fixed for all": (CLUSTER, "auto.create.topics.enable", SET, "false"),
    "read-only in Kafka": (NODE, "group.max.size", SET, "3"),
    "not here": (NODE, "num.io.threads", SET, "3"),
    "unknown": (NODE, "nonsense", SET, "3"),
    "bad value": (NODE, "log.retention.ms", SET, "x"),
    "bad number": (NODE, "max.connections", SET, "0"),
    "no value": (NODE, "log.retention.ms", SET, None),
    "not a list": (NODE, "log.retention.ms", APPEND, "1"),
    "another broker": ("7", "log.retention.ms", SET, "1"),
    "unknown operation": (NODE, "log.retention.ms", 9, "1"),
}


@pytest.mark.parametrize(("scope", "name", "operation", "value"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_is_refused(scope: str, name: str, operation: int, value: str | None, wire: Wire) -> None:
    code, message = await change(wire, (name, operation, value), kind=BROKER, name=scope)
    expected = ErrorCode.INVALID_CONFIG if operation == APPEND else ErrorCode.INVALID_REQUEST
    assert code == expected
    assert message
    assert (await describe(wire, BROKER, CLUSTER)).configs == []


async def test_a_default_that_no_topic_can_live_with_is_refused(wire: Wire) -> None:
    await wire.create_topic(min_compaction_lag_ms="5000")
    assert await set_on(wire, NODE, "log.cleaner.max.compaction.lag.ms", "4000") == ErrorCode.INVALID_REQUEST
    assert (await describe(wire, TOPIC, "t")).error_code == 0


async def test_all_at_once(wire: Wire) -> None:
    assert await set_on(wire, NODE, "log.roll.ms", "5") == 0
    assert await replace(wire, BROKER, NODE, log_retention_ms="6", validate_only=True) == 0
    assert (await shown(wire, "log.roll.ms")).value == "5"
    assert await replace(wire, BROKER, NODE, log_retention_ms="6") == 0
    assert (await shown(wire, "log.roll.ms")).config_source == DEFAULT
    assert (await shown(wire, "log.retention.ms")).value == "6"


async def test_what_the_broker_was_started_with() -> None:
    async with AsyncBroker(max_connections=50) as broker, Wire(broker.kafka) as wire:
        assert await sources(wire, "max.connections") == [("50", STATIC)]
