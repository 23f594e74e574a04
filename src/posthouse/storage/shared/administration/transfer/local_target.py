"""The data directory that an export writes: in a directory beside it, which gets its name at the end.

Files of `DIR.export` while the export works:

    export.jsonl   the epoch of the lease, then one line for each segment that is written
    segments/      segment files and their indexes, by topic; becomes topics/ with the catalog
    catalog…       written last
"""

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.storage.files.catalog.catalog import Catalog
from posthouse.storage.files.catalog.producer_rows import rows as producer_rows
from posthouse.storage.files.catalog.rows import CatalogSnapshot, PartitionRow, SegmentRow, TopicRow
from posthouse.storage.files.segments.segment import segment_name
from posthouse.storage.files.system.data_directory import OsDataDirectory
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.files.system.permissions import DIRECTORY_MODE, FILE_MODE
from posthouse.storage.partition_view import PartitionView
from posthouse.storage.producers import BUCKET_BITS, Changes, Producer
from posthouse.storage.shared.administration.transfer.comparison import State
from posthouse.storage.shared.administration.transfer.exported_segments import ExportedSegment
from posthouse.storage.shared.administration.transfer.transfer_lease import TransferRefused
from posthouse.storage.spaces import Space

_LIST = "export.jsonl"
_SEGMENTS = "segments"
_TOPICS = "topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSegment:
    row: SegmentRow
    next_offset: int


class LocalTarget:
    """All calls block."""

    def __init__(self, directory: Path) -> None:
        """Raises TransferRefused if there is something already."""
        directory = self._directory = directory.absolute()
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise TransferRefused(f"{directory} is not empty; export to a new directory")
        self.place = directory.with_name(f"{directory.name}.export")
        self._list = self.place / _LIST
        self._new_list = self.place / f"{_LIST}.part"
        if self.place.exists() and not self._list.exists() and set(self.place.iterdir()) - {self._new_list}:
            raise TransferRefused(f"{self.place} is in the way, and not of an export; rename it")
        self.written: dict[PartitionId, list[WrittenSegment]] = {}

    def begin(self, cluster_id: str, epoch: int) -> None:
        """Go on with an export that was interrupted, if the storage has not changed since; else begin anew.

        A broker that changes the storage has taken a lease, which raises the epoch.
        """
        if self._load(cluster_id, epoch):
            self._remove_catalog()
        else:
            shutil.rmtree(self.place, ignore_errors=True)
            self.written = {}
            self.place.mkdir(DIRECTORY_MODE, parents=True)
        lines = [json.dumps({"cluster_id": cluster_id, "epoch": epoch})]
        lines += [_line(each) for found in self.written.values() for each in found]
        _write(self._new_list, "".join(f"{line}\n" for line in lines).encode())
        self._new_list.replace(self._list)
        (self.place / _SEGMENTS).mkdir(DIRECTORY_MODE, exist_ok=True)

    def _load(self, cluster_id: str, epoch: int) -> bool:
        try:
            first, *lines = self._list.read_text().splitlines(keepends=True)
        except (FileNotFoundError, ValueError):
            return False
        if json.loads(first) != {"cluster_id": cluster_id, "epoch": epoch - 1}:
            return False
        for line in lines:
            if line.endswith("\n"):  # the last one may be torn
                each = _written(json.loads(line))
                self.written.setdefault(each.row.partition, []).append(each)
        return True

    def reached(self, partition: PartitionId) -> int:
        """The offset behind what is written of a log."""
        written = self.written.get(partition)
        return written[-1].next_offset if written else 0

    def add(self, partition: PartitionId, segment: ExportedSegment) -> None:
        image = segment.image
        directory = self.place / _SEGMENTS / partition.topic.hex()
        directory.mkdir(DIRECTORY_MODE, exist_ok=True)
        path = directory / segment_name(partition.index, image.base_offset)
        index = image.index()
        _write(path, image.data)
        _write(path.with_suffix(".index"), index)
        written = WrittenSegment(
            row=SegmentRow(
                partition,
                image.base_offset,
                len(image.data),
                image.max_timestamp,
                image.created_ms,
                len(index),
                image.generation,
                min(segment.extent.clean_to, image.next_offset),
                segment.extent.horizon,
                has_header=True,
            ),
            next_offset=image.next_offset,
        )
        with self._list.open("a") as file:
            file.write(f"{_line(written)}\n")
        self.written.setdefault(partition, []).append(written)

    def write_catalog(
        self, cluster_id: str, topics: Iterable[Topic], view: PartitionView, state: State
    ) -> None:
        """Describe the segments. A broker can open the directory then."""
        snapshot = CatalogSnapshot(frame=0)
        rows = []
        for topic in topics:
            rows.append(TopicRow.of(topic))
            for partition in topic.partition_ids():
                bounds = view.bounds(partition)
                snapshot.partitions.append(PartitionRow(partition, bounds.start, bounds.end))
                snapshot.segments += [each.row for each in self.written.get(partition, [])]
                for key, value in producer_rows(partition, _producers(view, partition)).items():
                    snapshot.state[Space.PRODUCERS.value, key] = value
        for space, values in state.items():
            snapshot.state |= {(space.value, key): value for key, value in values.items()}
        data_directory = OsDataDirectory(self.place)
        data_directory.acquire()
        catalog = Catalog(data_directory)
        try:
            catalog.open(lambda: cluster_id)
            catalog.put_topics(rows)
            catalog.checkpoint(snapshot)
            catalog.set_clean()
        finally:
            catalog.close()
            data_directory.release()
        (self.place / _SEGMENTS).rename(self.place / _TOPICS)

    def finish(self) -> None:
        """Give the directory its name."""
        disk = OsDisk()
        disk.sync_everything(str(self.place))
        with suppress(FileNotFoundError):
            self._directory.rmdir()
        self.place.rename(self._directory)
        (self._directory / _LIST).unlink()
        disk.sync_directory(str(self._directory.absolute().parent))

    def _remove_catalog(self) -> None:
        """Return to the state before `write_catalog`."""
        if (self.place / _TOPICS).exists():
            (self.place / _TOPICS).rename(self.place / _SEGMENTS)
        for path in self.place.iterdir():
            if path.name not in (_LIST, _SEGMENTS):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()


def _write(path: Path, data: bytes | bytearray) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def _producers(view: PartitionView, partition: PartitionId) -> Changes:
    buckets: dict[int, dict[int, Producer]] = {}
    for id, producer in view.producers(partition).items():
        buckets.setdefault(id >> BUCKET_BITS, {})[id] = producer
    end = view.bounds(partition).end
    aborted = {each.last_offset: each for each in view.aborted(partition, 0, end)}
    return Changes(buckets=buckets, aborted=dict(aborted), replaces_whole=False)


def _line(written: WrittenSegment) -> str:
    row = written.row
    numbers = [
        row.base_offset,
        row.size,
        row.max_timestamp,
        row.created_ms,
        row.index_size,
        row.generation,
        row.clean_to,
        row.horizon,
    ]
    return json.dumps([row.partition.topic.hex(), row.partition.index, written.next_offset, *numbers])


def _written(line: Sequence[Any]) -> WrittenSegment:
    topic, index, next_offset, base, size, max_timestamp, created_ms, *more = line
    index_size, generation, clean_to, horizon = more
    partition = PartitionId(TopicId(bytes.fromhex(topic)), index)
    row = SegmentRow(
        partition, base, size, max_timestamp, created_ms, index_size, generation, clean_to, horizon, True
    )
    return WrittenSegment(row=row, next_offset=next_offset)
