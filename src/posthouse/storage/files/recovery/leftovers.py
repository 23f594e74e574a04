"""Recovery of files that a crash during compaction left behind.

A file is deleted only if its records are in files that the catalog names, and all of those files of its
partition are there in full. Then these files are leftovers:

- `….log.part`: never finished;
- a generation without a row: finished but not swapped in, or replaced by a later one;
- a file without a generation inside the range of a segment that has one: a source of that segment.

All other files stay: a file may hold valuable data although its row is missing.
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable

from posthouse.storage.files.segments.partition_log import PartitionLog
from posthouse.storage.files.segments.segment import UNFINISHED, SegmentName, parse_segment_name
from posthouse.storage.files.system.disk import Disk

log = logging.getLogger(__name__)


def remove_leftovers(disk: Disk, logs: Iterable[PartitionLog]) -> None:
    """Delete leftovers. `logs` have the segments of the catalog, before the journal is replayed."""
    by_directory: dict[str, dict[int, PartitionLog]] = {}
    for owner in logs:
        if owner.config.is_compacted or any(segment.generation for segment in owner.segments):
            by_directory.setdefault(owner.directory, {})[owner.id.index] = owner
    for directory, owners in by_directory.items():
        whole = {index for index, owner in owners.items() if _is_whole(disk, owner)}
        for name in disk.names(directory):
            found = parse_segment_name(name.removesuffix(".part"))
            if found is None or found.partition not in whole:
                continue
            if name.endswith(UNFINISHED) or _is_replaced(found, owners[found.partition]):
                log.info("%s/%s: deleting, left over from an interrupted compaction", directory, name)
                disk.remove(f"{directory}/{name}")
                if not name.endswith(UNFINISHED):
                    disk.remove(f"{directory}/{name.removesuffix('.log')}.index")


def _is_whole(disk: Disk, owner: PartitionLog) -> bool:
    return all(
        not segment.misplaced and disk.size(segment.path) >= segment.size for segment in owner.segments
    )


def _is_replaced(file: SegmentName, owner: PartitionLog) -> bool:
    number = bisect_right(owner.segments, file.base_offset, key=lambda segment: segment.base_offset) - 1
    if number < 0:
        return file.generation > 0
    holder = owner.segments[number]
    if (holder.base_offset, holder.generation) == (file.base_offset, file.generation):
        return False
    is_inside = number + 1 < len(owner.segments) or file.base_offset < owner.end
    return file.generation > 0 or (holder.generation > 0 and is_inside)
