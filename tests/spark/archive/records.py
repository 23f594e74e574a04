"""Records for archives, and archives without Spark: what tasks and driver do, done here one after another."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from posthouse.client.cluster import TopicInfo
from posthouse.spark.archive.files import SCHEMA, DayFiles
from posthouse.spark.archive.manifest import ArchivedFile, Change, Log, Manifest
from posthouse.spark.archive.planning import ArchiveTask, covered_by
from posthouse.spark.archive.reading import ArchivePlan, ArchiveRange
from posthouse.spark.archive.root import Root

DAY_MS = 86_400_000
NOON = 1_700_006_400_000 // DAY_MS * DAY_MS + DAY_MS // 2
EVERYTHING = 2**63 - 1


class Record(NamedTuple):
    timestamp: int
    value: bytes


Records = dict[int, Record]
"""By offset."""


def topic(name: str = "orders", *, id: int = 1, partitions: int = 1) -> TopicInfo:
    return TopicInfo(name=name, id=id.to_bytes(16, "big"), leaders=(0,) * partitions)


def batch_of(records: Mapping[int, Record]) -> pa.RecordBatch:
    offsets = sorted(records)
    columns = {
        "partition": pa.array([0] * len(offsets), pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([records[each].timestamp * 1000 for each in offsets], pa.int64()),
        "timestampType": pa.array([0] * len(offsets), pa.int32()),
        "value": pa.array([records[each].value for each in offsets], pa.binary()),
    }
    columns["timestamp"] = columns["timestamp"].cast(SCHEMA.field("timestamp").type)
    return pa.RecordBatch.from_pydict(columns)


def write(
    root: Root, info: TopicInfo, logs: Mapping[int, Records], run: str = "run", target: int = 2**40
) -> list[ArchivedFile]:
    """Files with these records of each partition."""
    files = DayFiles(root, info.name, info.id.hex(), run, target_bytes=target)
    for partition, records in sorted(logs.items()):
        if records:
            files.write(partition, batch_of(records))
    return files.close()


def archive(
    manifest: Manifest, pieces: Iterable[ArchiveTask], logs: Mapping[Log, Records], *, crash: bool = False
) -> None:
    """One step of a run. A crash comes when all files are there and the manifest is not."""
    taken = list(pieces)
    files = []
    for piece in taken:
        for partition, (start, end) in piece.slices:
            log = logs[Log(piece.topic.id.hex(), partition)]
            part = {offset: record for offset, record in log.items() if start <= offset < end}
            files += write(manifest.root, piece.topic, {partition: part})
    if not crash:
        names = {piece.topic.id.hex(): piece.topic.name for piece in taken}
        manifest.commit(Change(topics=names, cover=covered_by(taken), add=files), run="run")


def found(plan: ArchivePlan, topic_id: str, wanted: ArchiveRange) -> list[tuple[int, Record]]:
    """What readers are served."""
    schema = pa.schema([SCHEMA.field(name) for name in ("offset", "timestamp", "value")])
    rows = []
    for slice in plan.slices(topic_id, wanted, slice_bytes=3000):
        for batch in slice.read(schema):
            times = batch.column("timestamp").cast(pa.int64()).to_pylist()
            values, offsets = batch.column("value").to_pylist(), batch.column("offset").to_pylist()
            rows += [
                (offset, Record(time // 1000, value))
                for offset, time, value in zip(offsets, times, values, strict=True)
            ]
    return rows


def all_of(plan: ArchivePlan, log: Log) -> list[tuple[int, Record]]:
    return sorted(found(plan, log.topic_id, ArchiveRange(partition=log.partition, first=0, end=EVERYTHING)))
