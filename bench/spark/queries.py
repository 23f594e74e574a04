"""What sessions are asked to do. Every function runs in the process of a session and gives plain values."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

TWO_COLUMNS = ("offset", "value")
_TWO_COLUMNS_SCHEMA = "offset BIGINT, value BINARY"
_TRIGGERS_TO_WARM_UP = 5
_TRIGGERS_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where rows come from. "archive" is `read_archive`; the rest are formats of Spark."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    topic: str = ""
    two_columns: bool = False
    takes_schema: bool = False
    """Columns are chosen by a schema: the API for Python sources cannot be told otherwise."""


def frame_of(spark: SparkSession, source: Source) -> DataFrame:
    if source.format == "archive":
        from posthouse.spark.archive import read_archive

        assert source.path is not None
        frame = read_archive(spark, source.path, [source.topic])
    else:
        reader = spark.read.format(source.format).options(**source.options)
        if source.two_columns and source.takes_schema:
            reader = reader.schema(_TWO_COLUMNS_SCHEMA)
        frame = reader.load(source.path)
    return frame.select(*TWO_COLUMNS) if source.two_columns else frame


def count(spark: SparkSession, source: Source) -> int:
    return frame_of(spark, source).count()


def read(spark: SparkSession, source: Source) -> float:
    """Seconds to read everything and throw it away, with the planning."""
    begun = time.perf_counter()
    frame_of(spark, source).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun


def write(spark: SparkSession, source: Source, format: str, options: Mapping[str, str]) -> float:
    """Seconds to write key and value of every row."""
    begun = time.perf_counter()
    rows = frame_of(spark, source).select("key", "value")
    writer = rows.write.format(format).options(**options)
    writer.mode("overwrite" if format == "noop" else "append").save()
    return time.perf_counter() - begun


def archive(spark: SparkSession, bootstrap: str, directory: str, topic: str) -> int:
    """How many records are in the archive now."""
    from posthouse.spark.archive import Archiver

    return Archiver(spark, bootstrap, directory).run([topic]).records


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    sink: str = "noop"
    sink_options: Mapping[str, str] = field(default_factory=dict)


def triggers(spark: SparkSession, stream: Stream, checkpoint: str, wanted: int) -> list[float]:
    """Seconds of `wanted` micro-batches, one after the other without a pause, as Spark reports them."""
    rows = spark.readStream.format(stream.format).options(**stream.options).load()
    if stream.sink != "noop":
        rows = rows.selectExpr("CAST(value AS BINARY) AS value")
    writer = rows.writeStream.format(stream.sink).options(**stream.sink_options)
    query = writer.option("checkpointLocation", checkpoint).start()
    last = _TRIGGERS_TO_WARM_UP + wanted - 1
    deadline = time.monotonic() + _TRIGGERS_SECONDS
    try:
        while _batches_done(query.lastProgress) <= last:
            time.sleep(0.05)
            problem = query.exception()
            if problem is not None:
                raise problem
            if time.monotonic() > deadline:
                raise TimeoutError(f"the stream made {_batches_done(query.lastProgress)} batches only")
        progress = [each for each in query.recentProgress if each["numInputRows"]]
    finally:
        query.stop()
    return [each["durationMs"]["triggerExecution"] / 1000 for each in progress][
        _TRIGGERS_TO_WARM_UP : last + 1
    ]


def _batches_done(progress: Mapping[str, int] | None) -> int:
    return 0 if progress is None else progress["batchId"] + 1
