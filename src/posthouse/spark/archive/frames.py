"""An archive as a DataFrame, read by Spark's own Parquet reader, optionally with the live tail."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from posthouse.client import Client, Security
from posthouse.client.positions import EARLIEST
from posthouse.spark.archive.errors import ArchiveError
from posthouse.spark.archive.reading import ArchivePlan, ArchiveRange
from posthouse.spark.schema import source_schema

Offsets = dict[str, dict[int, int]]
"""By topic and partition."""

_EVERY = 2**63 - 1


def read_archive(
    spark: SparkSession,
    url: str,
    topics: Sequence[str],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    first: Offsets | None = None,
    end: Offsets | None = None,
    bootstrap: str | None = None,
    include_headers: bool = False,
) -> DataFrame:
    """The records of these topics, with the columns of the source.

    From `since` to before `until` by timestamp, and from `first` to before `end` by offset. Without
    `bootstrap` only the archive is read; of re-created topics the newest. With it, records that are not
    archived yet are read from the log, and none twice.
    """
    plan = ArchivePlan.open(url)
    frames = []
    for topic in topics:
        found = _Topic(spark, plan, topic, bootstrap, include_headers)
        frames += found.frames(since, until, (first or {}).get(topic, {}), (end or {}).get(topic, {}))
    schema = source_schema(include_headers=include_headers)
    if not frames:
        return spark.createDataFrame([], schema)
    return reduce(DataFrame.unionByName, frames)


class _Topic:
    def __init__(
        self, spark: SparkSession, plan: ArchivePlan, topic: str, bootstrap: str | None, headers: bool
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._topic = topic
        self._bootstrap = bootstrap
        self._schema = source_schema(include_headers=headers)
        self._starts: dict[int, int] = {}
        if bootstrap is None:
            found = plan.topic_id(topic)
            if found is None:
                raise ArchiveError(f"topic {topic!r} is not in the archive {plan.root}; archive it first")
            self._id = found
            self._partitions = plan.partitions(found)
        else:
            with Client(bootstrap, security=Security.from_environment()) as client:
                info = client.topic(topic)
                found_starts = client.find_offsets([(info, range(info.partitions))], EARLIEST)
            self._id = info.id.hex()
            self._partitions = list(range(info.partitions))
            self._starts = {index: found_starts[topic, index] for index in self._partitions}

    def frames(
        self, since: datetime | None, until: datetime | None, first: dict[int, int], end: dict[int, int]
    ) -> list[DataFrame]:
        made = [self._archived(since, until, first, end)]
        if self._bootstrap is not None:
            made.append(self._live(first, end))
        return [_limited(frame, since, until) for frame in made if frame is not None]

    def _archived(
        self, since: datetime | None, until: datetime | None, first: dict[int, int], end: dict[int, int]
    ) -> DataFrame | None:
        paths: dict[str, None] = {}
        conditions = []
        for partition in self._partitions:
            wanted = ArchiveRange(
                partition=partition,
                first=first.get(partition, 0),
                end=end.get(partition, _EVERY),
                since=None if since is None else _ms(since),
                until=None if until is None else _ms(until) + 1,
            )
            paths |= dict.fromkeys(file.path for file in self._plan.files(self._id, wanted))
            conditions += _conditions(partition, first, end)
        if not paths:
            return None
        stored = StructType([field for field in self._schema if field.name != "topic"])
        places = [self._plan.root.location(path) for path in paths]
        frame = self._spark.read.schema(stored).parquet(*places)
        for condition in conditions:
            frame = frame.where(condition)
        columns = [
            sql.lit(self._topic).alias("topic") if each == "topic" else each for each in self._schema.names
        ]
        return frame.select(*columns)

    def _live(self, first: dict[int, int], end: dict[int, int]) -> DataFrame | None:
        """From the archived end on; without archived records from the start of the log."""
        starts, ends = {}, {}
        for partition in self._partitions:
            archived = self._plan.archived_end(self._id, partition)
            begin = self._starts[partition] if archived is None else archived
            starts[str(partition)] = max(begin, first.get(partition, 0))
            ends[str(partition)] = max(starts[str(partition)], end[partition]) if partition in end else -1
        reader = self._spark.read.format("posthouse").schema(self._schema)
        return (
            reader.option("kafka.bootstrap.servers", self._bootstrap or "")
            .option("assign", json.dumps({self._topic: self._partitions}))
            .option("startingOffsets", json.dumps({self._topic: starts}))
            .option("endingOffsets", json.dumps({self._topic: ends}))
            # The broker may delete some of it before it is read, if an archiver runs now.
            .option("archive", self._plan.root.url)
            .load()
        )


def _conditions(partition: int, first: dict[int, int], end: dict[int, int]) -> list[Column]:
    elsewhere = sql.col("partition") != partition
    made = []
    if partition in first:
        made.append(elsewhere | (sql.col("offset") >= first[partition]))
    if partition in end:
        made.append(elsewhere | (sql.col("offset") < end[partition]))
    return made


def _limited(frame: DataFrame, since: datetime | None, until: datetime | None) -> DataFrame:
    if since is not None:
        frame = frame.where(sql.col("timestamp") >= sql.lit(_aware(since)))
    if until is not None:
        frame = frame.where(sql.col("timestamp") < sql.lit(_aware(until)))
    return frame


def _aware(moment: datetime) -> datetime:
    """A time without a zone is UTC, as the days of the archive are."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _ms(moment: datetime) -> int:
    return int(_aware(moment).timestamp() * 1000)
