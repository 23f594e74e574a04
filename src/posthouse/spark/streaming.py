"""The stream reader: `spark.readStream.format("posthouse")`.

Spark's checkpoint owns the offsets. The reader lives as long as the query, in one process on the driver;
tasks get only their ranges.
"""

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from posthouse.client.cluster import TopicInfo
from posthouse.client.topic_partitions import TopicPartition
from posthouse.spark.access import Access, access_of
from posthouse.spark.live import lost
from posthouse.spark.offset_resolver import OffsetResolver
from posthouse.spark.offsets import Json, Offsets, from_json, to_json
from posthouse.spark.options import LATEST, Position, SourceOptions
from posthouse.spark.planning import limited, ranges_between
from posthouse.spark.schema import arrow_schema, check_schema
from posthouse.spark.segments.holds import release
from posthouse.spark.tasks import holds_of, pieces, read_piece


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = arrow_schema(schema)
        self._survey = OffsetResolver(options)
        self._topic_ids: dict[str, bytes] = {}
        """By name, to detect a topic that was deleted and re-created."""
        self._target: Offsets | None = None
        """The end offsets of a query that reads only what is available now."""
        self._last_advance = time.monotonic()
        self._holds: list[tuple[Offsets, bytes]] = []
        """Of batches that are planned and not committed, with the ends of these batches."""

    def initialOffset(self) -> Json:
        topics = self._topics()
        self._survey.require_all(topics)
        places = self._survey.places(topics)
        starting = self._options.starting or Position(offset=LATEST)
        return to_json(self._survey.start_of(starting, topics, places))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_offsets) if self._options.max_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        begun = from_json(start)
        # Deleted partitions stay in the offsets; otherwise they would be read from the start if they came
        # back.
        ends = begun | self._checked(begun, self._ends() if self._target is None else dict(self._target))
        known = self._beginnings(begun, ends)
        if self._waits_for_more(known, ends):
            return to_json(begun)
        if isinstance(limit, ReadMaxRows):
            ends = limited(known, ends, limit.max_rows)
        self._last_advance = time.monotonic()
        return to_json(ends)

    def reportLatestOffset(self) -> Json | None:
        return to_json(self._ends())

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        begun, ends = from_json(start), from_json(end)
        topics = self._topics()
        ranges = ranges_between(self._beginnings(begun, ends), ends)
        there = set(self._survey.places(topics))
        first = self._survey.starts(topics, [each.place for each in ranges if each.place in there])
        for each in ranges:
            if each.place not in there:
                lost(self._options, f"{_name(each.place)} was deleted before offset {each.end} was read")
            elif each.first < first[each.place]:
                lost(
                    self._options,
                    f"{_name(each.place)} begins at offset {first[each.place]}, not at {each.first}",
                )
        found = [each for each in ranges if each.place in there]
        planned = pieces(self._options, found, topics, self._survey.archive)
        self._holds += [(ends, hold) for hold in holds_of(planned)]
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self._options, self._schema, partition)

    def commit(self, end: Json) -> None:
        """Records before `end` will not be requested again: commit the progress to the group."""
        group = self._options.group
        if group is not None:
            topics = self._topics()
            offsets = {
                (place.topic, place.partition): offset
                for place, offset in from_json(end).items()
                if place.topic in topics
            }
            self._access().call(lambda client: client.commit_offsets(group, offsets))
        self._release(from_json(end))

    def stop(self) -> None:
        self._release(None)
        self._access().drop()

    def _release(self, end: Offsets | None) -> None:
        """The objects of this batch, and of those before it, are read; None: of all."""
        ends = [each for each, _ in self._holds]
        done = len(ends) if end is None else ends.index(end) + 1 if end in ends else 0
        released, self._holds = self._holds[:done], self._holds[done:]
        for _, hold in released:
            release(self._options, hold)

    def _access(self) -> Access:
        return access_of(self._options)

    def _topics(self) -> dict[str, TopicInfo]:
        topics = self._survey.topics()
        for name, info in topics.items():
            if self._topic_ids.setdefault(name, info.id) != info.id:
                lost(self._options, f"topic {name!r} was deleted and created again")
                self._topic_ids[name] = info.id
        self._survey.open_archive(topics)
        return topics

    def _ends(self) -> Offsets:
        topics = self._topics()
        return self._survey.ends(topics, self._survey.places(topics))

    def _beginnings(self, begun: Offsets, ends: Offsets) -> Offsets:
        """Partitions that were added or re-created are read from their start."""
        fresh = [place for place in ends if place not in begun or ends[place] < begun[place]]
        if not fresh:
            return begun
        topics = self._topics()
        there = set(self._survey.places(topics))
        return begun | self._survey.starts(topics, [place for place in fresh if place in there])

    def _checked(self, begun: Offsets, ends: Offsets) -> Offsets:
        """The ends, none of them before the reached offset unless the partition was re-created."""
        for place in sorted(begun.keys() - ends.keys()):
            lost(self._options, f"{_name(place)} was deleted, though offset {begun[place]} was reached")
        behind = [place for place in ends if ends[place] < begun.get(place, 0)]
        if behind:
            # Perhaps only because transactions are open there: then there is nothing new.
            whole = self._survey.ends(self._topics(), behind, committed=False)
            ends |= {place: begun[place] for place in behind if whole[place] >= begun[place]}
        for place in behind:
            if ends[place] < begun[place]:
                lost(
                    self._options, f"{_name(place)} ends at {ends[place]}, though {begun[place]} was reached"
                )
        return ends

    def _waits_for_more(self, known: Offsets, ends: Offsets) -> bool:
        least = self._options.min_offsets
        if least is None or self._target is not None:
            return False
        waiting = sum(each.size for each in ranges_between(known, ends))
        waited_ms = (time.monotonic() - self._last_advance) * 1000
        return 0 < waiting < least and waited_ms < self._options.max_trigger_delay_ms


def _name(place: TopicPartition) -> str:
    return f"topic {place.topic!r}, partition {place.partition}"
