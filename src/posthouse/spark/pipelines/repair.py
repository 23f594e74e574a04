"""Dead-letter repair: mend what can be mended, and put it back where it came from, exactly once.

    posthouse pipeline repair orders.dead --function fix.py:mend --still-dead orders.hopeless

The function takes a DataFrame (key, value, topic, partition, offset, timestamp, timestampType, headers)
and returns it with the values mended and a BOOLEAN column `mended`. A record goes back to the topic that
the option or one of its headers names. What is not mended, or came from nobody knows where, goes to the
topic `still_dead`; without one it only stays where it is, in the dead-letter topic. All of it is one
query, so that a record is in one of the places or not read yet, whatever happens.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from posthouse.spark.pipelines.context import PipelineContext
from posthouse.spark.pipelines.errors import WrongPipeline

# Where those who write dead letters note the topic: Spring, Kafka Connect, and many by hand.
HEADERS = ("kafka_dlt-original-topic", "__connect.errors.topic", "x-original-topic", "original-topic")


def origin(header: str | None) -> Column:
    """The topic that a record came from, by its headers; NULL if they do not say."""
    names = [header] if header else list(HEADERS)
    return F.coalesce(*(_header(name).cast("string") for name in names))


def _header(name: str) -> Column:
    """The first header of that name, or NULL."""
    return F.get(F.filter("headers", lambda header: header["key"] == name), 0)["value"]


def route(mended: DataFrame, back_to: Column, still_dead: str | None) -> DataFrame:
    """Every record with the topic that it goes to."""
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
            f"what {settings['function']} returns has no column 'mended'; add a BOOLEAN that says which are"
        )
    back_to = F.lit(settings["back_to"]) if settings.get("back_to") else origin(settings.get("header"))
    return [context.to_topic(route(mended, back_to, settings.get("still_dead")), name="repair")]
