"""The batch reader: `spark.read.format("posthouse")`."""

from collections.abc import Iterator, Sequence
from types import MethodType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from posthouse.client.cluster import TopicInfo
from posthouse.spark.filters import Restriction
from posthouse.spark.offsets import Offsets, Place
from posthouse.spark.options import EARLIEST, LATEST, Position, SourceOptions
from posthouse.spark.planning import ranges_between
from posthouse.spark.schema import arrow_schema, check_schema
from posthouse.spark.spanning import Times
from posthouse.spark.survey import Survey
from posthouse.spark.tasks import lost, pieces, read_piece


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = arrow_schema(schema)
        self._restriction = Restriction()
        self.pushFilters = _Pushing(self._push)  # type: ignore[method-assign]

    def _push(self, filters: list[Filter]) -> list[Filter]:
        self._restriction, left = Restriction.of(filters)
        return left

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        survey = Survey(options)
        topics = survey.topics()
        survey.open_archive(topics)
        survey.require_all(topics)
        places = survey.places(topics)
        start = survey.start_of(options.starting or Position(offset=EARLIEST), topics, places)
        end = survey.end_of(options.ending or Position(offset=LATEST), topics, places)
        asked = self._restriction
        wanted = [place for place in places if asked.wants(place)]
        start, end = self._checked(survey, topics, wanted, start, end)
        if asked.first_ms is not None:
            from_time = survey.from_time(asked.first_ms, topics, wanted)
            start = {place: max(start[place], from_time[place]) for place in wanted}
        ranges = [asked.applied(each) for each in ranges_between(start, end)]
        times = Times(asked.first_ms, asked.end_ms)
        return pieces(options, [each for each in ranges if each.size > 0], topics, survey.archive, times)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self._options, self._schema, partition)

    def _checked(
        self,
        survey: Survey,
        topics: dict[str, TopicInfo],
        places: list[Place],
        start: Offsets,
        end: Offsets,
    ) -> tuple[Offsets, Offsets]:
        """What was asked for, as far as the log has it."""
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


class _Pushing:
    """A `pushFilters` that is used where Spark allows it, and no reason to fail where not.

    Spark refuses a reader that overrides the method while `spark.sql.python.filterPushdown.enabled` is off,
    which is the default, and a reader cannot ask for the setting. Spark looks at `__func__` to tell.
    """

    __func__ = DataSourceReader.pushFilters

    def __init__(self, push: MethodType | Any) -> None:
        self._push = push

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        found: list[Filter] = self._push(filters)
        return found
