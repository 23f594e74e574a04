"""Resolves the partitions of a query, and the offsets at which they start and end."""

from collections.abc import Collection, Mapping

from posthouse.client.cluster import TopicInfo
from posthouse.client.errors import TopicNotFound
from posthouse.client.topic_partitions import TopicPartition
from posthouse.spark.access import access_of
from posthouse.spark.errors import WrongOption
from posthouse.spark.offsets import Offsets
from posthouse.spark.options import EARLIEST, LATEST, Position, SourceOptions
from posthouse.spark.spanning import Archive


class OffsetResolver:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._access = access_of(options)
        self.archive: Archive | None = None
        """The archived part of the logs."""

    def open_archive(self, topics: Mapping[str, TopicInfo]) -> None:
        """Open the archive, if the options name one."""
        if self._options.archive is not None:
            self.archive = Archive(self._options.archive, topics)

    def topics(self) -> dict[str, TopicInfo]:
        """The existing topics that the options select. A pattern may select none."""
        infos = self._access.call(lambda client: client.topics())
        wants = self._options.topics.wants
        return {info.name: info for info in infos if wants(info.name)}

    def require_all(self, topics: Mapping[str, TopicInfo]) -> None:
        """Raises if a named topic or partition does not exist."""
        wanted = self._options.topics
        for name in (*wanted.names, *(place.topic for place in wanted.places)):
            if name not in topics:
                raise TopicNotFound(
                    f"there is no topic {name!r} at {self._options.bootstrap}; "
                    f"create it with 'posthouse topic create {name}'",
                    3,
                )
        for place in wanted.places:
            topics[place.topic].check_partitions([place.partition])

    def places(self, topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
        if self._options.topics.places:
            return [
                place
                for place in self._options.topics.places
                if place.topic in topics and place.partition < topics[place.topic].partitions
            ]
        return [
            TopicPartition(name, index) for name in sorted(topics) for index in range(topics[name].partitions)
        ]

    def starts(self, topics: Mapping[str, TopicInfo], places: Collection[TopicPartition]) -> Offsets:
        """The first readable offsets, in the log or in the archive."""
        return self._find(topics, places, EARLIEST)

    def ends(
        self,
        topics: Mapping[str, TopicInfo],
        places: Collection[TopicPartition],
        *,
        committed: bool | None = None,
    ) -> Offsets:
        """The present ends of the readable logs; `committed` overrides the option."""
        return self._find(topics, places, LATEST, committed)

    def start_of(
        self, position: Position, topics: Mapping[str, TopicInfo], places: Collection[TopicPartition]
    ) -> Offsets:
        if position.offset is not None:
            return self._find(topics, places, position.offset)
        if position.offsets:
            return self._by_offset("startingOffsets", dict(position.offsets), topics, places)
        times = self._times("startingOffsetsByTimestamp", position, places)
        found = self._by_time(times, topics)
        missing = [place for place, offset in found.items() if offset < 0]
        if missing and not self._options.missing_time_is_end:
            place = missing[0]
            raise WrongOption(
                f"topic {place.topic!r}, partition {place.partition}, has no record from time {times[place]} "
                "on; choose an earlier starting time, or set "
                ".option('startingOffsetsByTimestampStrategy', 'latest')"
            )
        return found | self._find(topics, missing, LATEST)

    def end_of(
        self, position: Position, topics: Mapping[str, TopicInfo], places: Collection[TopicPartition]
    ) -> Offsets:
        if position.offset is not None:
            return self._find(topics, places, position.offset)
        if position.offsets:
            return self._by_offset("endingOffsets", dict(position.offsets), topics, places)
        found = self._by_time(self._times("endingOffsetsByTimestamp", position, places), topics)
        # No record is that recent: all records lie before the time.
        return found | self._find(topics, [place for place, offset in found.items() if offset < 0], LATEST)

    def _by_offset(
        self, option: str, given: Offsets, topics: Mapping[str, TopicInfo], places: Collection[TopicPartition]
    ) -> Offsets:
        self._check_complete(option, given, places)
        found = {place: offset for place, offset in given.items() if offset >= 0}
        for end in (EARLIEST, LATEST):
            found |= self._find(topics, [place for place, offset in given.items() if offset == end], end)
        return found

    def _times(self, option: str, position: Position, places: Collection[TopicPartition]) -> Offsets:
        if position.timestamp is not None:
            return dict.fromkeys(places, position.timestamp)
        times = dict(position.timestamps)
        self._check_complete(option, times, places)
        return times

    def _check_complete(self, option: str, given: Offsets, places: Collection[TopicPartition]) -> None:
        if wrong := set(given) ^ set(places):
            place = min(wrong)
            fault = "names" if place in given else "leaves out"
            raise WrongOption(
                f"the option {option!r} {fault} partition {place.partition} of topic {place.topic!r}; "
                "it must have exactly the partitions that are read, -2 stands for the earliest offset and "
                "-1 for the latest"
            )

    def _by_time(self, times: Offsets, topics: Mapping[str, TopicInfo]) -> Offsets:
        found: Offsets = {}
        for time in sorted(set(times.values())):
            found |= self._find(topics, [place for place in times if times[place] == time], time)
        return found

    def _find(
        self,
        topics: Mapping[str, TopicInfo],
        places: Collection[TopicPartition],
        time: int,
        committed: bool | None = None,
    ) -> Offsets:
        if not places:
            return {}
        wanted: dict[str, list[int]] = {}
        for place in places:
            wanted.setdefault(place.topic, []).append(place.partition)
        pairs = [(topics[name], indexes) for name, indexes in wanted.items()]
        only = self._options.is_committed if committed is None else committed
        answers = self._access.call(lambda client: client.find_offsets(pairs, time, committed=only))
        found = {TopicPartition(*place): offset for place, offset in answers.items()}
        if self.archive is None or time == LATEST:
            return found
        if time == EARLIEST:
            return self.archive.starts(found)
        for place, offset in self.archive.since(time, places).items():
            found[place] = offset if found[place] < 0 else min(offset, found[place])
        return found
