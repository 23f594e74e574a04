"""The batch reader: `spark.read.format("posthouse")`.

It has no `pushFilters`. Spark 4.2 and 4.3 keep the planned partitions with the DataFrame: a filter pushed
down by one query would also apply to the next query on the same frame, and to the other side of a union or a
join with itself. Options of the source select records instead.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from posthouse.client.cluster import TopicInfo
from posthouse.client.topic_partitions import TopicPartition
from posthouse.spark.live import lost
from posthouse.spark.offset_resolver import OffsetResolver
from posthouse.spark.offsets import Offsets
from posthouse.spark.options import EARLIEST, LATEST, Position, SourceOptions
from posthouse.spark.planning import ranges_between
from posthouse.spark.schema import arrow_schema, check_schema
from posthouse.spark.tasks import pieces, read_piece


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        survey = OffsetResolver(options)
        topics = survey.topics()
        survey.open_archive(topics)
        survey.require_all(topics)
        places = survey.places(topics)
        start = survey.start_of(options.starting or Position(offset=EARLIEST), topics, places)
        end = survey.end_of(options.ending or Position(offset=LATEST), topics, places)
        start, end = self._checked(survey, topics, places, start, end)
        return pieces(options, ranges_between(start, end), topics, survey.archive, uses_index=True)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self._options, self._schema, partition)

    def _checked(
        self,
        survey: OffsetResolver,
        topics: dict[str, TopicInfo],
        places: list[TopicPartition],
        start: Offsets,
        end: Offsets,
    ) -> tuple[Offsets, Offsets]:
        """The requested offsets, as far as the log has them."""
        first, last = survey.starts(topics, places), survey.ends(topics, places)
        for place in places:
            name = f"topic {place.topic!r}, partition {place.partition}"
            if start[place] < first[place]:
                lost(self._options, f"{name} begins at offset {first[place]}, not at {start[place]}")
            if end[place] > last[place]:
                lost(self._options, f"{name} ends at offset {last[place]}, not at {end[place]}")
        return (
            {place: max(start[place], first[place]) for place in places},
            {place: min(end[place], last[place]) for place in places},
        )
