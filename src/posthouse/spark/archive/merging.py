"""Merging small files of a day into larger ones, which are faster to read. Records stay unchanged."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby

from posthouse.spark.archive.files import SCHEMA, DayFiles, day_name
from posthouse.spark.archive.manifest import ArchivedFile, ArchiveState
from posthouse.spark.archive.reading import ArchiveRange, ArchiveSlice
from posthouse.spark.archive.root import Root

_DAY_MS = 86_400_000
_ENOUGH = 8
"""Files of an unfinished day are merged when there are this many; later files are merged again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Files of one topic and day to merge into one."""

    topic: str
    files: tuple[ArchivedFile, ...]


def merges(
    state: ArchiveState, topics: Collection[str] | None, *, target_bytes: int, now_ms: int
) -> list[Merge]:
    """Groups worth merging: files smaller than half of the target, together up to about the target."""
    today = day_name(now_ms // _DAY_MS)
    small = [
        file
        for file in state.files.values()
        if file.bytes < target_bytes // 2 and (topics is None or state.topics[file.topic_id] in topics)
    ]
    found = []
    small.sort(key=lambda file: (file.topic_id, file.day, file.parts[0].partition, file.parts[0].first))
    for (topic_id, day), files in groupby(small, key=lambda file: (file.topic_id, file.day)):
        enough = 2 if day < today else _ENOUGH
        groups = [group for group in _filled(list(files), target_bytes) if len(group) >= enough]
        found += [Merge(topic=state.topics[topic_id], files=tuple(group)) for group in groups]
    return found


def _filled(files: list[ArchivedFile], target_bytes: int) -> list[list[ArchivedFile]]:
    groups: list[list[ArchivedFile]] = [[]]
    size = 0
    for file in files:
        if groups[-1] and size + file.bytes > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.bytes
    return groups


def merge(root: Root, each: Merge, run: str) -> list[ArchivedFile]:
    """Write the merged file; the old ones stay. Within a partition, files are merged in offset order."""
    [topic_id] = {file.topic_id for file in each.files}
    # No size limit: the group was chosen to be about the target size.
    target = DayFiles(root, each.topic, topic_id, run, target_bytes=2**63)
    try:
        for partition in sorted({part.partition for file in each.files for part in file.parts}):
            parts = [(part, file) for file in each.files if (part := file.part(partition)) is not None]
            for part, file in sorted(parts, key=lambda pair: pair[0].first):
                wanted = ArchiveRange(partition=partition, first=part.first, end=part.end)
                slice = ArchiveSlice(root=root, topic=each.topic, paths=(file.path,), wanted=wanted)
                for batch in slice.read(SCHEMA):
                    target.write(partition, batch)
        return target.close()
    except BaseException:
        target.abandon()
        raise
