"""Replay: the records of a topic again, through changed code, into another topic or a table.

    posthouse pipeline replay orders --from 2d --to 1d --function fix.py:transform --to-topic orders-2

The function takes a DataFrame with the columns of the source (key, value, topic, partition, offset,
timestamp, timestampType, headers) and returns one with at least `value`. It runs as a stream that ends:
when it is interrupted, the same command goes on where it was.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from posthouse.spark.pipelines.context import PipelineContext

# What a topic takes. `topic` and `partition` of the source would send records back to where they came from.
MESSAGE = ("key", "value", "headers", "timestamp")


def as_messages(frame: DataFrame) -> DataFrame:
    return frame.select(*(name for name in MESSAGE if name in frame.columns))


def pipeline(spark: SparkSession, context: PipelineContext) -> list[StreamingQuery]:
    settings = context.settings
    # In pieces, so that there is progress to see and a place to go on from.
    records = context.source(
        settings["topic"],
        includeHeaders="true",
        maxOffsetsPerTrigger=str(settings.get("batch", 500_000)),
    )
    if settings.get("function"):
        records = context.function(settings["function"])(records)
    if settings.get("to_topic"):
        return [context.to_topic(as_messages(records), settings["to_topic"], name="replay")]
    return [context.to_table(records, settings["to_table"], name="replay")]
