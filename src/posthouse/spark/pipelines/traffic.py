"""Traffic report: messages, bytes, distinct keys, sizes and lag of topics, by minute.

    posthouse pipeline report orders payments --from 24h --out traffic.html

The lag of a group in a minute is the number of that minute's messages that the group has not read yet, so it
shows the age of the waiting messages.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posthouse.client import Client, Security
from posthouse.spark.pipelines.errors import WrongPipeline

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MINUTE_MS = 60_000
_DAY_MS = 86_400_000
_INTERNAL = "__"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSlice:
    """Traffic of a topic in a minute or, with `minute` None, in the whole time."""

    topic: str
    minute: int | None
    """Start of the minute, in ms since the epoch."""
    messages: int
    bytes: int
    keys: int
    """Approximate number of distinct keys."""
    sizes: tuple[int, int, int, int]
    """Sizes of the values: median, 95th and 99th percentile, maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    group: str
    topic: str
    minute: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficReport:
    bootstrap: str
    start: int
    end: int
    step: int
    """The length of a `minute`, in ms: longer than one for reports over many days."""
    topics: Sequence[TrafficSlice]
    minutes: Sequence[TrafficSlice]
    lags: Sequence[Lag]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommittedOffset:
    group: str
    topic: str
    partition: int
    offset: int


def survey_traffic(
    spark: "SparkSession",
    bootstrap: str,
    topics: Iterable[str] = (),
    *,
    start: int | None = None,
    end: int | None = None,
) -> TrafficReport:
    """Without topics all but internal ones; without times the last 24 hours."""
    end = end if end is not None else int(time.time() * 1000) + 1
    start = start if start is not None else end - _DAY_MS
    if start >= end:
        raise WrongPipeline("the time to report on ends before it begins; change --from or --to")
    names, committed = _ask_broker(bootstrap, list(topics))
    step = _step(end - start)
    records = _records(spark, bootstrap, names, start, end)
    totals, minutes = _sliced(records, step)
    lags = _lags(spark, records, committed, step) if committed else []
    return TrafficReport(
        bootstrap=bootstrap, start=start, end=end, step=step, topics=totals, minutes=minutes, lags=lags
    )


def _ask_broker(bootstrap: str, wanted: list[str]) -> tuple[list[str], list[_CommittedOffset]]:
    with Client(bootstrap, security=Security.from_environment()) as client:
        names = [client.topic(name).name for name in wanted] or [
            topic.name for topic in client.topics() if not topic.name.startswith(_INTERNAL)
        ]
        committed = [
            _CommittedOffset(
                group=group.name, topic=each.topic, partition=each.partition, offset=each.committed
            )
            for group in client.groups()
            for each in client.group_offsets(group)
            if each.topic in names and each.committed is not None
        ]
    if not names:
        raise WrongPipeline("there are no topics to report on; create one with 'posthouse topic create'")
    return names, committed


def _records(spark: "SparkSession", bootstrap: str, topics: list[str], start: int, end: int) -> "DataFrame":
    return (
        spark.read.format("posthouse")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", ",".join(topics))
        .option("startingTimestamp", str(start))
        .option("startingOffsetsByTimestampStrategy", "latest")
        .option("endingTimestamp", str(end))
        .load()
        .where(f"timestamp >= timestamp_millis({start}) AND timestamp < timestamp_millis({end})")
    )


def _sliced(records: "DataFrame", step: int) -> tuple[list[TrafficSlice], list[TrafficSlice]]:
    from pyspark.sql import functions as F

    size = F.coalesce(F.octet_length("value"), F.lit(0))
    rows = (
        records.select(
            "topic",
            "key",
            _minute(step).alias("minute"),
            size.alias("size"),
            (size + F.coalesce(F.octet_length("key"), F.lit(0))).alias("bytes"),
        )
        .rollup("topic", "minute")
        .agg(
            F.count("*").alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.approx_count_distinct("key").alias("keys"),
            F.percentile_approx("size", [0.5, 0.95, 0.99], 1000).alias("sizes"),
            F.max("size").alias("largest"),
        )
        .where("topic IS NOT NULL")
        .collect()
    )
    slices = [
        TrafficSlice(
            topic=row.topic,
            minute=row.minute,
            messages=row.messages,
            bytes=row.bytes,
            keys=row["keys"],
            sizes=(*row.sizes, row.largest),
        )
        for row in rows
    ]
    totals = sorted((each for each in slices if each.minute is None), key=lambda each: each.topic)
    minutes = [each for each in slices if each.minute is not None]
    return totals, sorted(minutes, key=lambda each: (each.topic, each.minute or 0))


def _lags(
    spark: "SparkSession", records: "DataFrame", committed: list[_CommittedOffset], step: int
) -> list[Lag]:
    from pyspark.sql import functions as F

    read = spark.createDataFrame(
        [(each.group, each.topic, each.partition, each.offset) for each in committed],
        "group STRING, topic STRING, partition INT, committed BIGINT",
    )
    rows = (
        records.select("topic", "partition", "offset", _minute(step).alias("minute"))
        .join(F.broadcast(read), ["topic", "partition"])
        .where("offset >= committed")
        .groupBy("group", "topic", "minute")
        .count()
        .collect()
    )
    found = [Lag(group=row.group, topic=row.topic, minute=row.minute, messages=row["count"]) for row in rows]
    return sorted(found, key=lambda each: (each.topic, each.group, each.minute))


def _minute(step: int) -> "Column":
    from pyspark.sql import functions as F

    return F.expr(f"unix_millis(timestamp) DIV {step} * {step}")


def _step(length: int) -> int:
    """A plot shows about a thousand points at most."""
    for minutes in (1, 10, 60):
        if length <= minutes * _DAY_MS:
            return minutes * MINUTE_MS
    return _DAY_MS
