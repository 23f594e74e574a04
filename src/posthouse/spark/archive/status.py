"""Archived and unarchived offsets by partition. Needs no Spark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from posthouse.client import Client
from posthouse.client.cluster import TopicInfo
from posthouse.spark.archive.manifest import ArchiveState, Log, Range


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    topic: str
    topic_id: str
    partition: int
    archived: tuple[Range, ...]
    records: int
    bytes: int
    """An estimate: if a file holds several partitions, each gets a share by its records."""
    files: int
    end: int | None
    """The end of its log; None without a broker or if the topic was deleted."""

    @property
    def lag(self) -> int | None:
        """Number of offsets of the log that are not archived."""
        if self.end is None:
            return None
        return max(0, self.end - (self.archived[-1].end if self.archived else 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    version: int
    records: int
    bytes: int
    files: int
    partitions: Sequence[PartitionStatus]
    not_archived: Sequence[str]
    """Topics of the broker that are not in the archive."""
    gone: frozenset[str]
    """Ids of topics that exist only in the archive."""


def live_ends(client: Client) -> dict[Log, tuple[str, int]]:
    """Name of the topic and end of the log, for every partition of the broker."""
    topics: list[TopicInfo] = [info for info in client.topics() if not info.is_internal]
    bounds = client.bounds(topics)
    return {
        Log(info.id.hex(), index): (info.name, bounds[info.name, index].end)
        for info in topics
        for index in range(info.partitions)
    }


def status_of(state: ArchiveState, live: Mapping[Log, tuple[str, int]] | None = None) -> Status:
    """`live` is the result of `live_ends`; without it the lag is unknown."""
    totals: dict[Log, list[int]] = {log: [0, 0, 0] for log in state.covered}
    for file in state.files.values():
        for part in file.parts:
            total = totals[Log(file.topic_id, part.partition)]
            total[0] += part.rows
            total[1] += file.bytes * part.rows // file.rows
            total[2] += 1
    known = live or {}
    logs = {*totals, *(log for log in known if log.topic_id in state.topics)}
    names = state.topics
    return Status(
        version=state.version,
        records=sum(file.rows for file in state.files.values()),
        bytes=sum(file.bytes for file in state.files.values()),
        files=len(state.files),
        partitions=[
            PartitionStatus(
                topic=names[log.topic_id],
                topic_id=log.topic_id,
                partition=log.partition,
                archived=tuple(state.covered.get(log, ())),
                records=totals.get(log, [0, 0, 0])[0],
                bytes=totals.get(log, [0, 0, 0])[1],
                files=totals.get(log, [0, 0, 0])[2],
                end=known[log][1] if log in known else None,
            )
            for log in sorted(logs, key=lambda log: (names[log.topic_id], log))
        ],
        not_archived=sorted({name for log, (name, _) in known.items() if log.topic_id not in names}),
        gone=frozenset() if live is None else frozenset(names) - {log.topic_id for log in live},
    )
