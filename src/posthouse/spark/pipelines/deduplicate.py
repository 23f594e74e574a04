"""Deduplicate: a topic without the records that repeat an earlier one within a time.

    posthouse pipeline deduplicate orders orders.once --within "10 minutes"
    posthouse pipeline deduplicate orders orders.once --by "get_json_object(string(value), '$.order_id')"

Spark remembers each key for that time after its first record. Records that are late by more than that time
are dropped, as in every query with a watermark. Records without a key are never duplicates, and pass.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from posthouse.spark.pipelines.context import PipelineContext


def unique(records: DataFrame, by: str, within: str) -> DataFrame:
    """The first record of each key; `by` is a column or any SQL expression."""
    itself = F.concat_ws("/", "topic", "partition", "offset")
    # Key and position are separate fields, so that no key can equal a position.
    key = F.struct(F.expr(by).alias("key"), F.when(F.expr(by).isNull(), itself).alias("place"))
    return (
        records.withColumn("identity", key)
        .withWatermark("timestamp", within)
        .dropDuplicatesWithinWatermark(["identity"])
        .select("key", "value", "headers", "timestamp")
    )


def pipeline(spark: SparkSession, context: PipelineContext) -> list[StreamingQuery]:
    settings = context.settings
    records = context.source(settings["topic"], includeHeaders="true")
    once = unique(records, settings.get("by", "key"), settings.get("within", "10 minutes"))
    return [context.to_topic(once, settings["to_topic"], name="deduplicate")]
