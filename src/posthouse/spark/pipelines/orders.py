"""Orders: a topic → clean → sales by item and window → a table of Parquet files, and a topic.

    posthouse pipeline run .                              until Ctrl-C; the next run resumes there
    posthouse pipeline run . --once                       only what is there now
    posthouse pipeline run . --from 2h --to 1h            that hour again, into a place of its own

The settings are in pipeline.toml. Everything else here is ordinary PySpark: change it.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from posthouse.spark.pipelines.context import PipelineContext

ORDER = "order_id STRING, item STRING, quantity INT, price DOUBLE"


def clean(records: DataFrame) -> DataFrame:
    """Records of the topic → orders. Other records are dropped; a dead-letter topic could take them."""
    order = F.from_json(F.col("value").cast("string"), ORDER)
    return (
        records.select(order.alias("order"), F.col("timestamp").alias("ordered_at"))
        .select("order.*", "ordered_at")
        .where("order_id IS NOT NULL AND item IS NOT NULL AND quantity > 0 AND price >= 0")
        .withColumn("item", F.lower(F.trim("item")))
    )


def sales(orders: DataFrame, window: str, lateness: str) -> DataFrame:
    """Orders → one row per item and window, when no more orders of that window are expected."""
    return (
        orders.withWatermark("ordered_at", lateness)
        .groupBy(F.window("ordered_at", window), "item")
        .agg(
            F.count("*").alias("orders"),
            F.sum("quantity").alias("quantity"),
            F.round(F.sum(F.col("quantity") * F.col("price")), 2).alias("revenue"),
        )
        .select("window.start", "window.end", "item", "orders", "quantity", "revenue")
    )


def pipeline(spark: SparkSession, context: PipelineContext) -> list[StreamingQuery]:
    """Called by `posthouse pipeline run`. Starts the queries and returns them."""
    settings = context.settings
    orders = clean(context.source(settings["source"]))
    totals = sales(orders, settings["window"], settings["lateness"])

    # A topic takes the columns key, value, headers and timestamp; here a row becomes a JSON text.
    messages = totals.select(F.col("item").alias("key"), F.to_json(F.struct("*")).alias("value"))

    return [
        context.to_table(totals, settings["table"], name="sales-table"),
        context.to_topic(messages, settings["result"], name="sales-topic"),
    ]
