"""The files of the index at the start: which of them can be used, as the log may have lost its end."""

import logging
from collections.abc import Iterable, Mapping

from posthouse.broker.key_index.file_format import (
    HEADER_BYTES,
    DamagedIndex,
    FileName,
    IndexHeader,
    decode_header,
)
from posthouse.broker.key_index.files import IndexFiles
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId
from posthouse.records.batch import parse_header
from posthouse.storage.contract import Storage

log = logging.getLogger(__name__)


def usable_files(files: IndexFiles, ends: Mapping[PartitionId, int]) -> list[IndexHeader]:
    """On a thread: the headers of usable files, in the order of offsets. All others are deleted."""
    kept: list[IndexHeader] = []
    topics = {id.topic for id in ends}
    for topic in files.topics():
        if topic not in topics:
            files.remove_topic(topic)
            continue
        found: list[IndexHeader] = []
        useless: list[str] = []
        for name in files.names(topic):
            parsed = FileName.parse(name)
            end = None if parsed is None else ends.get(PartitionId(topic, parsed.partition))
            if parsed is None or end is None or parsed.end > end:
                useless.append(name)
                continue
            try:
                header = decode_header(files.read(topic, name, HEADER_BYTES, 0))
            except DamagedIndex as error:
                log.warning("key index, file %s: deleted, because of damage: %s", name, error)
                useless.append(name)
                continue
            is_named = header.name == name and header.partition.topic == topic
            if header.may_change:
                useless.append(name)
            elif is_named and header.size == files.size(topic, name):
                found.append(header)
            else:
                useless.append(name)
        kept += (whole := _without_overlaps(found))
        useless += [each.name for each in found if each not in whole]
        files.remove(topic, useless)
    return kept


def _without_overlaps(headers: Iterable[IndexHeader]) -> list[IndexHeader]:
    """A crash may leave files that were joined, next to the one that has them all: that counts."""
    kept: list[IndexHeader] = []
    for header in sorted(headers, key=lambda each: (each.partition.index, each.first, -each.end)):
        before = kept[-1] if kept else None
        if before is None or before.partition != header.partition or before.end <= header.first:
            kept.append(header)
    return kept


async def is_in_log(storage: Storage, header: IndexHeader) -> bool:
    """Whether the log has the batch with which the file ends."""
    bounds = storage.bounds(header.partition)
    if header.end <= bounds.start or header.end > bounds.end:
        return False
    try:
        part = await storage.read(header.partition, header.end - 1, 1)
        batch = parse_header(part.data)
    except PosthouseError:
        return False
    if batch.next_offset != header.end:
        return False
    topic = storage.topics.get(header.partition.topic)
    return batch.crc == header.last_crc or (topic is not None and topic.config.is_compacted)
