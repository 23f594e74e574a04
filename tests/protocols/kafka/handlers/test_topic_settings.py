"""Every topic setting of Kafka 4.3.1: which values are accepted, and how it is described.

The tables are what that broker itself answers. Where this one differs, it is said here and in docs/kafka.md.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from posthouse.model.topic_config import Durability
from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.handlers.test_configs import change, describe, one
from tests.protocols.kafka.wire import Wire

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
SET = 0


@dataclass(frozen=True)
class Setting:
    kind: int
    default: str
    synonym: str | None
    """Under which name the default is shown; None: it is not."""
    good: tuple[str, ...]
    bad: tuple[str, ...]


def number(kind: int, default: int, synonym: str | None, low: int, *more: str) -> Setting:
    high = INT32_MAX if kind == INT else INT64_MAX
    some = max(low, 1)
    good = (str(low), str(high), f"+{some}", f" {some} ", *more)
    bad = (str(low - 1), str(high + 1), "x", "", "1.0", "1_048_576", "٣")
    return Setting(kind, str(default), synonym, good, bad)


def boolean(synonym: str | None) -> Setting:
    good = ("true", "false", "TRUE", "False", " true ")
    return Setting(BOOLEAN, "false", synonym, good, ("yes", "1", ""))


REPLICAS = Setting(
    LIST, "", None, ("", "*", "0:1", "0:1,1:1", "0:1, 1:1", ",", " * "), ("x", "0", "0:1,*", "*,*")
)

KAFKA = {
    "cleanup.policy": Setting(
        LIST,
        "delete",
        "log.cleanup.policy",
        (
            "",
            "delete",
            "compact",
            "compact,delete",
            "delete,compact",
            "compact, delete",
            " compact ",
            "delete,delete",
        ),
        ("Compact", "delete,", "none", ",", "[]"),
    ),
    "compression.gzip.level": Setting(
        INT, "-1", "compression.gzip.level", ("-1", "1", "9"), ("-2", "0", "10", "x", "")
    ),
    "compression.lz4.level": Setting(
        INT, "9", "compression.lz4.level", ("1", "9", "17"), ("0", "18", "-1", "x", "")
    ),
    "compression.type": Setting(
        STRING,
        "producer",
        "compression.type",
        ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd", " gzip "),
        ("none", "GZIP", ""),
    ),
    "compression.zstd.level": Setting(
        INT, "3", "compression.zstd.level", ("-131072", "0", "3", "22"), ("-131073", "23", "x", "")
    ),
    "delete.retention.ms": number(LONG, 86_400_000, "log.cleaner.delete.retention.ms", 0),
    "file.delete.delay.ms": number(LONG, 60_000, "log.segment.delete.delay.ms", 0),
    "flush.messages": number(LONG, INT64_MAX, "log.flush.interval.messages", 1),
    "flush.ms": number(LONG, INT64_MAX, None, 0),
    "follower.replication.throttled.replicas": REPLICAS,
    "index.interval.bytes": number(INT, 4096, "log.index.interval.bytes", 0),
    "leader.replication.throttled.replicas": REPLICAS,
    "local.retention.bytes": number(LONG, -2, "log.local.retention.bytes", -2),
    "local.retention.ms": number(LONG, -2, "log.local.retention.ms", -2),
    "max.compaction.lag.ms": number(LONG, INT64_MAX, "log.cleaner.max.compaction.lag.ms", 1),
    "max.message.bytes": number(INT, 1_048_588, "message.max.bytes", 0),
    "message.timestamp.after.max.ms": number(LONG, 3_600_000, "log.message.timestamp.after.max.ms", 0),
    "message.timestamp.before.max.ms": number(LONG, INT64_MAX, "log.message.timestamp.before.max.ms", 0),
    "message.timestamp.type": Setting(
        STRING,
        "CreateTime",
        "log.message.timestamp.type",
        ("CreateTime", "LogAppendTime", " CreateTime "),
        ("createtime", ""),
    ),
    # Kafka takes NaN, too.
    "min.cleanable.dirty.ratio": Setting(
        DOUBLE,
        "0.5",
        "log.cleaner.min.cleanable.ratio",
        ("0", "0.5", "1", " 0.25 ", "1e-3", ".5"),
        ("-0.1", "1.1", "x", ""),
    ),
    "min.compaction.lag.ms": number(LONG, 0, "log.cleaner.min.compaction.lag.ms", 0),
    "min.insync.replicas": number(INT, 1, "min.insync.replicas", 1, "2"),
    "preallocate": boolean("log.preallocate"),
    "remote.log.copy.disable": boolean(None),
    "remote.log.delete.on.disable": boolean(None),
    "remote.storage.enable": Setting(
        BOOLEAN, "false", None, ("false", "False", " false "), ("true", "TRUE", "yes", "")
    ),
    "retention.bytes": number(LONG, -1, "log.retention.bytes", -(2**63), "-1", "-2", "0"),
    "retention.ms": number(LONG, 604_800_000, None, -1),
    # A gibibyte in Kafka.
    "segment.bytes": number(INT, 256 * 1024 * 1024, "log.segment.bytes", 1024 * 1024),
    "segment.index.bytes": number(INT, 10_485_760, "log.index.size.max.bytes", 4),
    "segment.jitter.ms": number(LONG, 0, None, 0),
    "segment.ms": number(LONG, 604_800_000, None, 1),
    "unclean.leader.election.enable": boolean("unclean.leader.election.enable"),
}
OURS = {
    "durability",
    "index.keys",
    "latency",
    "retention.consumed",
    "retention.local.bytes",
    "retention.local.ms",
    "rocketmq.priority.enable",
}


async def create(wire: Wire, name: str, *values: str | None) -> list[CreatableTopicResult]:
    topics = [
        CreatableTopic(
            name=f"t{number}",
            num_partitions=1,
            replication_factor=3,
            configs=[CreatableTopicConfig(name=name, value=value)],
        )
        for number, value in enumerate(values)
    ]
    request = CreateTopicsRequest(topics=topics, validate_only=True, timeout_ms=1000)
    return (await wire.ask(request, CreateTopicsResponse)).topics


@pytest.mark.parametrize("name", KAFKA)
async def test_the_values_that_kafka_accepts(name: str, wire: Wire) -> None:
    setting = KAFKA[name]
    for value, topic in zip(setting.good, await create(wire, name, *setting.good), strict=True):
        assert topic.error_code == 0, f"{value!r}: {topic.error_message}"
        [shown] = [config for config in topic.configs or () if config.name == name]
        assert shown.config_source == 1
    bad = (*setting.bad, None)
    for refused, topic in zip(bad, await create(wire, name, *bad), strict=True):
        assert topic.error_code == ErrorCode.INVALID_CONFIG, repr(refused)
        assert topic.error_message and name in topic.error_message


async def test_settings_that_kafka_no_longer_knows(wire: Wire) -> None:
    for name in ("message.downconversion.enable", "message.format.version"):
        [topic] = await create(wire, name, "true")
        assert topic.error_code == ErrorCode.INVALID_CONFIG


async def test_how_settings_are_described(wire: Wire) -> None:
    await wire.create_topic()
    configs = {config.name: config for config in (await describe(wire)).configs}
    assert set(configs) == set(KAFKA) | OURS
    for name, setting in KAFKA.items():
        shown = configs[name]
        expected = [] if setting.synonym is None else [(setting.synonym, setting.default, 5)]
        assert [(each.name, each.value, each.source) for each in shown.synonyms] == expected, name
        assert (shown.value, shown.config_type, shown.config_source) == (setting.default, setting.kind, 5)
        assert not shown.read_only


async def test_what_has_no_effect_is_kept_and_says_so(tmp_path: Path) -> None:
    wanted = {"min.insync.replicas": "2", "preallocate": " TRUE ", "flush.messages": "+1", "flush.ms": "1000"}
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        await wire.create_topic("t", 1, **wanted)
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        for name, value in wanted.items():
            shown = await one(wire, name)
            assert (shown.value, shown.config_source) == (value.strip().lower().lstrip("+"), 1)
            assert shown.synonyms[0].source == 1
            assert shown.documentation is not None
            assert shown.documentation.startswith("No effect")


async def test_a_promise_of_flushing_needs_records_that_are_flushed(tmp_path: Path) -> None:
    """With durability=os nothing would hold it."""
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        await wire.create_topic("t", 1, **{"flush.ms": "1000"})
        code, message = await change(wire, ("durability", SET, "os"))
        assert code == ErrorCode.INVALID_CONFIG
        assert message and "durability=fsync" in message
        await wire.create_topic("fast", 1, **{"durability": "os", "flush.ms": str(INT64_MAX)})
    async with (
        AsyncBroker(data=tmp_path, default_durability=Durability.OS) as broker,
        Wire(broker.kafka) as wire,
    ):
        assert (await describe(wire)).error_code == 0, "a new default does not lose the topic"


async def test_small_segments_are_for_tests(broker: AsyncBroker, wire: Wire) -> None:
    """Under the name that Kafka has for them."""
    await wire.create_topic("t", 1, **{"internal.segment.bytes": "200"})
    assert broker.app.broker.topic("t").config.segment_bytes == 200
    assert await change(wire, ("retention.ms", SET, "5")) == (0, None)
    assert (await change(wire, ("segment.bytes", SET, "200")))[0] == ErrorCode.INVALID_CONFIG
    assert await change(wire, ("internal.segment.bytes", 1, None)) == (0, None)
    assert broker.app.broker.topic("t").overrides == {"retention.ms": "5"}
