"""Dead-letter repair: mends records and writes them back to their original topics, exactly once.

    posthouse pipeline repair orders.dead --function fix.py:mend --still-dead orders.hopeless

The function takes a DataFrame (key, value, topic, partition, offset, timestamp, timestampType, headers)
and returns it with the values mended and a BOOLEAN column `mended`. A mended record is written to the topic
that the option or one of its headers names. A record that is not mended, or has no known origin, is written
to the topic `still_dead`; without one it stays only in the dead-letter topic. All of it is one query, so that
every record is in one of the places or not read yet, even after a crash.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from posthouse.spark.pipelines.context import PipelineContext
from posthouse.spark.pipelines.errors import WrongPipeline

# Headers with the original topic: of Spring, Kafka Connect, and common custom ones.
HEADERS = ("kafka_dlt-original-topic", "__connect.errors.topic", "x-original-topic", "original-topic")


def origin(header: str | None) -> Column:
    """The original topic of a record, from its headers; NULL if they do not have it."""
    names = [header] if header else list(HEADERS)
    return F.coalesce(*(_header(name).cast("string") for name in names))


def _header(name: str) -> Column:
    """The first header of that name, or NULL."""
    return F.get(F.filter("headers", lambda header: header["key"] == name), 0)["value"]


def route(mended: DataFrame, back_to: Column, still_dead: str | None) -> DataFrame:
    """Every record with its target topic."""
    is_mended = F.coalesce(F.col("mended"), F.lit(False)) & back_to.isNotNull()
    place = F.when(is_mended, back_to).otherwise(F.lit(still_dead))
    columns = ("key", "value", "headers")
    return mended.select(*columns, place.alias("topic")).where("topic IS NOT NULL")


def pipeline(spark: SparkSession, context: PipelineContext) -> list[StreamingQuery]:
    settings = context.settings
    records = context.source(settings["topic"], includeHeaders="true")
    mended = context.function(settings["function"])(records)
    if "mended" not in mended.columns:
        raise WrongPipeline(
            f"the result of {settings['function']} has no column 'mended'; add it as a BOOLEAN"
        )
    back_to = F.lit(settings["back_to"]) if settings.get("back_to") else origin(settings.get("header"))
    return [context.to_topic(route(mended, back_to, settings.get("still_dead")), name="repair")]
