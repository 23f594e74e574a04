"""Reading data files: exactly the schema that is asked for, and as little of the files as can be."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from posthouse.spark.archive import files, reading
from posthouse.spark.archive.files import SCHEMA, day_name
from posthouse.spark.archive.manifest import Change, Log, Manifest, Range
from posthouse.spark.archive.merging import merge, merges
from posthouse.spark.archive.reading import ArchivePlan, ArchiveRange
from posthouse.spark.archive.root import Root
from posthouse.spark.schema import arrow_schema, source_schema
from tests.spark.archive.records import (
    DAY_MS,
    EVERYTHING,
    NOON,
    Record,
    all_of,
    batch_of,
    found,
    topic,
    write,
)

TOPIC = topic(partitions=2)
ID = TOPIC.id.hex()
LOGS = [Log(ID, 0), Log(ID, 1)]
RECORDS = {
    offset: Record(NOON + offset % 3 * DAY_MS + offset, b"value %d" % offset) for offset in range(0, 300, 3)
} | {offset: Record(NOON + offset, b"value %d" % offset) for offset in range(300, 400)}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArchivePlan]:
    """Both partitions in one file, with row groups of ten records, one of them with some of both."""
    directory = str(tmp_path_factory.mktemp("archive"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_GROUP_ROWS", 10)
        patch.setattr(reading, "BATCH_ROWS", 7)
        yield _made(directory)


def _made(directory: str) -> ArchivePlan:
    manifest = Manifest(Root(directory))
    add = []
    for begin in range(0, 400, 10):
        part = {offset: RECORDS[offset] for offset in range(begin, begin + 10) if offset in RECORDS}
        add += write(manifest.root, TOPIC, {0: part, 1: part})
    cover = dict.fromkeys(LOGS, Range(0, 400))
    manifest.commit(Change(topics={ID: "orders"}, cover=cover, add=add), run="run")
    some = merges(manifest.state, None, target_bytes=2**30, now_ms=NOON + 100 * DAY_MS)
    merged = [file for each in some for file in merge(manifest.root, each, "merge")]
    retired = [file.path for each in some for file in each.files]
    manifest.commit(Change(add=merged, retire=retired), run="run")
    assert len(manifest.state.files) == 1
    return ArchivePlan.open(directory)


def groups_read(plan: ArchivePlan, wanted: ArchiveRange) -> int:
    [file] = plan.state.files.values()
    with plan.root.open(file.path) as source:
        return len(list(reading._groups(pq.ParquetFile(source).metadata, wanted)))


def test_both_partitions_are_whole_and_in_order(plan: ArchivePlan) -> None:
    for log in LOGS:
        assert all_of(plan, log) == sorted(RECORDS.items())
        wanted = ArchiveRange(partition=log.partition, first=0, end=EVERYTHING)
        assert found(plan, ID, wanted) == sorted(RECORDS.items())


@pytest.mark.parametrize(("first", "end"), [(0, 1), (5, 31), (299, 301), (310, 320), (399, 400), (7, 7)])
def test_only_the_offsets_that_are_asked_for(plan: ArchivePlan, first: int, end: int) -> None:
    wanted = ArchiveRange(partition=1, first=first, end=end)
    assert found(plan, ID, wanted) == [
        (offset, record) for offset, record in RECORDS.items() if first <= offset < end
    ]


@pytest.mark.parametrize(("since", "until"), [(NOON, NOON + 31), (NOON + 300, None), (None, NOON + 1)])
def test_only_the_times_that_are_asked_for(plan: ArchivePlan, since: int | None, until: int | None) -> None:
    wanted = ArchiveRange(partition=0, first=0, end=EVERYTHING, since=since, until=until)
    assert found(plan, ID, wanted) == [
        (offset, record)
        for offset, record in RECORDS.items()
        if (since is None or record.timestamp >= since) and (until is None or record.timestamp < until)
    ]


def test_row_groups_are_passed_over(plan: ArchivePlan) -> None:
    everything = groups_read(plan, ArchiveRange(partition=0, first=0, end=EVERYTHING))
    assert everything >= 20
    assert groups_read(plan, ArchiveRange(partition=0, first=310, end=315)) <= 2
    assert groups_read(plan, ArchiveRange(partition=0, first=0, end=EVERYTHING, since=NOON + 390)) <= 2
    assert groups_read(plan, ArchiveRange(partition=2, first=0, end=EVERYTHING)) == 0


def test_batches_have_exactly_the_schema(plan: ArchivePlan) -> None:
    whole = arrow_schema(source_schema(include_headers=True))
    wanted = ArchiveRange(partition=1, first=300, end=330)
    for schema in (whole, pa.schema([whole.field("topic")]), pa.schema([whole.field("value")]), SCHEMA):
        [slice] = plan.slices(ID, wanted)
        batches = list(slice.read(schema))
        assert all(batch.schema == schema for batch in batches)
        assert sum(batch.num_rows for batch in batches) == 30
    [slice] = plan.slices(ID, wanted)
    first = next(slice.read(whole)).slice(0, 1).to_pylist()[0]
    assert (first["topic"], first["partition"], first["offset"]) == ("orders", 1, 300)
    assert (first["timestamp"].timestamp() * 1000, first["timestampType"]) == (NOON + 300, 0)
    assert (first["key"], first["value"], first["headers"]) == (None, b"value 300", None)


def test_files_of_other_days_are_not_opened(tmp_path: Path) -> None:
    manifest = Manifest(Root(str(tmp_path)))
    days = {offset: Record(NOON + offset * DAY_MS, b"x") for offset in range(5)}
    change = Change(
        topics={ID: "orders"},
        cover={LOGS[0]: Range(0, 5)},
        add=write(manifest.root, TOPIC, {0: days}),
    )
    manifest.commit(change, run="run")
    plan = ArchivePlan.open(str(tmp_path))
    third = ArchiveRange(
        partition=0, first=0, end=5, since=NOON + 2 * DAY_MS - 1000, until=NOON + 2 * DAY_MS + 1000
    )
    [file] = plan.files(ID, third)
    assert file.day == day_name(NOON // DAY_MS + 2)
    for other in plan.state.files.values():
        if other.path != file.path:
            (tmp_path / other.path).write_bytes(b"not to be read")
    assert found(plan, ID, third) == [(2, days[2])]


def test_days_before_1970_and_beyond_the_calendar(tmp_path: Path) -> None:
    times = [-1, 0, -DAY_MS, -DAY_MS - 1, 2**62 // 1000]
    records = {offset: Record(time, b"x") for offset, time in enumerate(times)}
    made = write(Root(str(tmp_path)), TOPIC, {0: records})
    days = {part.first: file.day for file in made for part in file.parts}
    assert days == {0: "1969-12-31", 1: "1970-01-01", 3: "1969-12-30", 4: "9999-12-31"}


def test_more_days_than_files_that_may_be_open(tmp_path: Path) -> None:
    records = {offset: Record(NOON + offset % 20 * DAY_MS, b"x") for offset in range(100)}
    root = Root(str(tmp_path))
    manifest = Manifest(root)
    add = write(root, TOPIC, {0: records})
    manifest.commit(Change(topics={ID: "orders"}, cover={LOGS[0]: Range(0, 100)}, add=add), run="run")
    assert all_of(ArchivePlan.open(str(tmp_path)), LOGS[0]) == sorted(records.items())


def test_files_are_closed_at_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_GROUP_ROWS", 1)
    made = files.DayFiles(Root(str(tmp_path)), "orders", ID, "run", target_bytes=1)
    for offset in range(3):
        made.write(0, batch_of({offset: Record(NOON, b"x")}))
    assert [file.parts[0].first for file in made.close()] == [0, 1, 2]


def test_a_task_that_fails_leaves_no_files(tmp_path: Path) -> None:
    made = files.DayFiles(Root(str(tmp_path)), "orders", ID, "run")
    made.write(0, batch_of({0: Record(NOON, b"x"), 1: Record(NOON + DAY_MS, b"y")}))
    made.abandon()
    assert Root(str(tmp_path)).stored() == []
