"""The context of a pipeline besides Spark: broker address, storage and time range.

Its methods are thin. Each stands for a few lines of PySpark that are the same in every pipeline. A program
that needs something else writes it out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posthouse.client import Client, Security, Start
from posthouse.client.topic_partitions import TopicPartition
from posthouse.spark.offsets import Offsets
from posthouse.spark.pipelines.errors import WrongPipeline
from posthouse.spark.pipelines.programs import load_function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class PipelineSettings(dict[str, Any]):
    """The pipeline's settings; a missing one raises with a sentence."""

    def __missing__(self, key: str) -> Any:
        raise WrongPipeline(f"the setting {key!r} is missing; add it to [settings] of pipeline.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineContext:
    spark: "SparkSession"
    bootstrap: str
    storage: str
    """Location of checkpoints and tables: a directory, or a URI that driver and executors can reach."""
    settings: PipelineSettings = field(default_factory=PipelineSettings)
    """The table [settings] of pipeline.toml."""
    start: int | None = None
    """Read records from this time on (ms since the epoch); None: from the start of the topic."""
    end: int | None = None
    """Read records before this time."""
    once: bool = False
    """Stop when all present records have been read."""
    interval: str | None = None
    """Interval of micro-batches, such as '5 seconds'; None: each begins when the previous one has ended."""
    ends: Offsets = field(default_factory=dict)
    """The offsets at time `end`, for the partitions of every source that was requested."""
    directory: Path = field(default_factory=Path)
    """The directory of the program; files that it names are relative to it."""

    def function(self, name: str) -> Callable[..., Any]:
        """A function that the settings name: `module:function`, or `file.py:function`."""
        return load_function(name, self.directory)

    def source(self, topic: str, **options: str) -> "DataFrame":
        """The records of a topic, or of several with commas between, as a stream."""
        reader = (
            self.spark.readStream.format("posthouse")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
        )
        if self.start is None:
            reader = reader.option("startingOffsets", "earliest")
        else:
            # A partition may have no record of that time yet; then reading begins at its end.
            reader = reader.option("startingTimestamp", str(self.start))
            reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
        records = reader.options(**options).load()
        if self.end is None:
            return records
        self._note_ends(topic.split(","))
        return records.where(f"timestamp < timestamp_millis({self.end})")

    def to_topic(
        self, frame: "DataFrame", topic: str | None = None, *, name: str, mode: str = "append"
    ) -> "StreamingQuery":
        """Write to a topic, exactly once. Without `topic`, the column `topic` names the topic of each row."""
        writer = (
            frame.writeStream.format("posthouse")
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("checkpointLocation", self.checkpoint(name))
            .queryName(name)
            .outputMode(mode)
            .trigger(**self.trigger)
        )
        return (writer if topic is None else writer.option("topic", topic)).start()

    def to_table(
        self, frame: "DataFrame", table: str, *, name: str | None = None, partition_by: Sequence[str] = ()
    ) -> "StreamingQuery":
        """Append to a table of Parquet files, exactly once. Read it with `spark.read.parquet`."""
        name = name or table
        self._check_owner(table, name)
        writer = (
            frame.writeStream.format("parquet")
            .option("path", self.table(table))
            .option("checkpointLocation", self.checkpoint(name))
            .queryName(name)
            .outputMode("append")
            .trigger(**self.trigger)
        )
        return (writer.partitionBy(*partition_by) if partition_by else writer).start()

    @property
    def trigger(self) -> dict[str, Any]:
        """For `writeStream.trigger(**context.trigger)`."""
        if self.is_bounded:
            return {"availableNow": True}
        return {"processingTime": self.interval or "0 seconds"}

    @property
    def is_bounded(self) -> bool:
        return self.once or self.end is not None

    def checkpoint(self, name: str) -> str:
        """For `option("checkpointLocation", …)`; a restarted query resumes from there."""
        return f"{self.storage}/checkpoints/{name}"

    def table(self, name: str) -> str:
        return f"{self.storage}/tables/{name}"

    def _note_ends(self, topics: Sequence[str]) -> None:
        with Client(self.bootstrap, security=Security.from_environment()) as client:
            for topic in map(str.strip, topics):
                found = client.offsets(topic, Start.since(self.end or 0))
                self.ends.update({TopicPartition(topic, index): offset for index, offset in found.items()})

    def _check_owner(self, table: str, name: str) -> None:
        """Raises if the table belongs to another checkpoint: Spark would skip batches with numbers that the
        table has."""
        log = Path(self.table(table)) / "_spark_metadata"
        if log.exists() and not Path(self.checkpoint(name)).exists():
            raise WrongPipeline(
                f"the table {self.table(table)} was written from another checkpoint than "
                f"{self.checkpoint(name)}, which does not exist; remove the table to build it again, or "
                "restore the checkpoint"
            )
