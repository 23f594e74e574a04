"""Copies of bytes that recovery cuts from a segment without knowing whether they were acknowledged.

They are copied to `set-aside/<topic id>-<segment's name>-<position>.log` before the segment is cut.
`posthouse log dump` reads such a file.
"""

from posthouse.storage.files.segments.partition_log import PartitionLog
from posthouse.storage.files.system.disk import Disk, synced

SET_ASIDE = "set-aside"
COPY_BYTES = 1024 * 1024


def set_aside(disk: Disk, directory: str, owner: PartitionLog, path: str, position: int) -> str:
    """Copy the file from `position` on, and truncate it there, durably. Returns the path of the copy."""
    place = f"{directory}/{SET_ASIDE}"
    copy = f"{place}/{owner.id.topic.hex()}-{path.rpartition('/')[2].removesuffix('.log')}-{position}.log"
    for changed in disk.make_directory(place):
        disk.sync_directory(changed)
    source = disk.open(path)
    try:
        _copy(disk, source, position, disk.size(path), copy)
        disk.sync_directory(place)
        disk.truncate(source, position)
        synced(disk, source)
    finally:
        disk.close(source)
    return copy


def _copy(disk: Disk, source: int, position: int, end: int, path: str) -> None:
    target = disk.open(path, create=True)
    try:
        disk.truncate(target, 0)  # discard an unfinished copy that a crash left
        for at in range(position, end, COPY_BYTES):
            disk.write(target, [disk.read(source, min(COPY_BYTES, end - at), at)], at - position)
        synced(disk, target)
    finally:
        disk.close(target)
