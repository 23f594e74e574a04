"""Replay: the records of a topic again, through changed code, into another topic or a table.

    posthouse pipeline replay orders --from 2d --to 1d --function fix.py:transform --to-topic orders-2

The function takes a DataFrame with the columns of the source (key, value, topic, partition, offset,
timestamp, timestampType, headers) and returns one with at least `value`. It runs as a finite stream: after an
interruption the same command resumes.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from posthouse.spark.pipelines.context import PipelineContext

# The columns of a message. `topic` and `partition` of the source would write records back to their origin.
MESSAGE = ("key", "value", "headers", "timestamp")


def as_messages(frame: DataFrame) -> DataFrame:
    return frame.select(*(name for name in MESSAGE if name in frame.columns))


def pipeline(spark: SparkSession, context: PipelineContext) -> list[StreamingQuery]:
    settings = context.settings
    # In pieces, so that there is progress to show and a position to resume from.
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
