"""The manifest: what counts, who wins, what is left behind."""

import json
import threading
from pathlib import Path

import pytest

from posthouse.spark.archive.errors import ArchiveConflict, ArchiveDamaged, ArchiveError, NoArchive
from posthouse.spark.archive.leftovers import Grace, sweep
from posthouse.spark.archive.manifest import ArchivedFile, Change, FilePart, Log, Manifest, Range
from posthouse.spark.archive.root import Root

TOPIC = "0" * 32
LOG = Log(TOPIC, 0)
HOUR = 3_600_000


def root_of(path: Path) -> Root:
    return Root(str(path / "archive"))


def file(name: str, first: int, end: int, *, partition: int = 0, rows: int | None = None) -> ArchivedFile:
    count = end - first if rows is None else rows
    return ArchivedFile(
        path=f"topic=orders/day=2026-01-01/{name}.parquet",
        topic_id=TOPIC,
        rows=count,
        bytes=10,
        min_timestamp=0,
        max_timestamp=1,
        parts=(FilePart(partition, first, end, count),),
    )


def more(start: int, end: int, name: str = "") -> Change:
    return Change(
        topics={TOPIC: "orders"},
        cover={LOG: Range(start, end)},
        add=[file(name or f"{start}-{end}", start, end)],
    )


def put(root: Root, path: str) -> None:
    with root.create(path) as stream:
        stream.write(b"data")


def stored(root: Root) -> set[str]:
    return {each.path for each in root.stored() if not each.path.startswith("_")}


def test_there_is_no_archive_before_the_first_version(tmp_path: Path) -> None:
    with pytest.raises(NoArchive, match="posthouse archive run"):
        Manifest.open(root_of(tmp_path))


def test_versions_follow_each_other(tmp_path: Path) -> None:
    writer = Manifest(root_of(tmp_path))
    for number in range(50):
        writer.commit(more(number * 10, number * 10 + 10), run="run", now_ms=number)
    reader = Manifest.open(root_of(tmp_path))
    assert reader.state == writer.state
    assert reader.state.covered == {LOG: [Range(0, 500)]}
    assert (reader.state.version, len(reader.state.files)) == (50, 50)
    versions = sorted((tmp_path / "archive" / "_manifest").iterdir())
    assert [each.name for each in versions[:2]] == [f"{number:020}.json" for number in (1, 2)]
    with_state = [
        number for number, each in enumerate(versions, 1) if "state" in json.loads(each.read_text())
    ]
    assert with_state == [16, 32, 48], "not in every version: that would be quadratic"


def test_a_reader_that_looked_before_finds_what_is_new(tmp_path: Path) -> None:
    writer, reader = Manifest(root_of(tmp_path)), Manifest(root_of(tmp_path))
    for number in range(40):
        writer.commit(more(number, number + 1), run="run")
        if number % 7 == 0:
            reader.refresh()
            assert reader.state == writer.state


def test_of_two_archivers_of_the_same_offsets_one_wins(tmp_path: Path) -> None:
    first, second = Manifest(root_of(tmp_path)), Manifest(root_of(tmp_path))
    first.commit(more(0, 10, "a"), run="first")
    with pytest.raises(ArchiveConflict, match=r"another archiver.*let only one run at a time"):
        second.commit(more(0, 12, "b"), run="second")
    assert [each.path for each in Manifest.open(root_of(tmp_path)).state.files.values()] == [
        "topic=orders/day=2026-01-01/a.parquet"
    ]
    with pytest.raises(ArchiveConflict):
        second.commit(more(9, 12, "b"), run="second")
    second.commit(more(10, 12, "b"), run="second")


def test_many_at_once_never_lose_a_change(tmp_path: Path) -> None:
    """Each covers a partition of its own, so all changes fit together; only versions collide."""

    def work(partition: int) -> None:
        manifest = Manifest(root_of(tmp_path))
        for number in range(10):
            name = f"{partition}-{number}"
            change = Change(
                topics={TOPIC: "orders"},
                cover={Log(TOPIC, partition): Range(number, number + 1)},
                add=[file(name, number, number + 1, partition=partition)],
            )
            manifest.commit(change, run=str(partition))

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = Manifest.open(root_of(tmp_path)).state
    assert state.version == 40
    assert state.covered == {Log(TOPIC, partition): [Range(0, 10)] for partition in range(4)}


WRONG = {
    "empty": Change(cover={LOG: Range(5, 5)}),
    "not covered": Change(cover={LOG: Range(10, 20)}, add=[file("x", 15, 21)]),
    "of another partition": Change(cover={LOG: Range(10, 20)}, add=[file("x", 10, 20, partition=1)]),
    "there already": Change(cover={LOG: Range(10, 20)}, add=[file("0-10", 10, 20)]),
    "fewer rows": Change(add=[file("x", 0, 10, rows=9)], retire=["topic=orders/day=2026-01-01/0-10.parquet"]),
    "other offsets": Change(add=[file("x", 0, 9, rows=10)], retire=[file("0-10", 0, 10).path]),
    "nothing instead": Change(retire=[file("0-10", 0, 10).path]),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_would_break_the_promise_is_refused(tmp_path: Path, change: Change) -> None:
    manifest = Manifest(root_of(tmp_path))
    manifest.commit(more(0, 10), run="run")
    with pytest.raises(ArchiveError):
        manifest.commit(change, run="run")
    assert Manifest.open(root_of(tmp_path)).state.version == 1


def test_a_merge_of_files_that_are_gone_is_refused(tmp_path: Path) -> None:
    manifest, other = Manifest(root_of(tmp_path)), Manifest(root_of(tmp_path))
    manifest.commit(more(0, 10), run="run")
    old = file("0-10", 0, 10).path
    manifest.commit(Change(add=[file("a", 0, 10)], retire=[old]), run="run")
    with pytest.raises(ArchiveConflict, match="replaced by another archiver"):
        other.commit(Change(add=[file("b", 0, 10)], retire=[old]), run="run")


def test_offsets_that_were_lost_leave_a_gap(tmp_path: Path) -> None:
    manifest = Manifest(root_of(tmp_path))
    for start, end in ((5, 10), (20, 30), (30, 40)):
        manifest.commit(more(start, end), run="run")
    assert manifest.state.covered[LOG] == [Range(5, 10), Range(20, 40)]
    assert manifest.state.end(LOG) == 40


def test_a_damaged_version_is_said(tmp_path: Path) -> None:
    manifest = Manifest(root_of(tmp_path))
    manifest.commit(more(0, 10), run="run")
    version = tmp_path / "archive" / "_manifest" / f"{1:020}.json"
    for text in ("{", '{"format": 2, "version": 1}'):
        version.write_text(text)
        with pytest.raises(ArchiveDamaged, match="version 1 of the manifest"):
            Manifest.open(root_of(tmp_path))


def test_a_sweep_removes_what_is_old_and_does_not_count(tmp_path: Path) -> None:
    root = root_of(tmp_path)
    manifest = Manifest(root)
    kept, old, new = file("0-10", 0, 10), file("10-20", 10, 20), file("merged", 10, 20)
    for each in (kept, old, new):
        put(root, each.path)
    put(root, "topic=orders/day=2026-01-01/crashed.parquet")
    put(root, "topic=orders/day=2026-01-01/.half.parquet.tmp")
    now = max(each.changed_ms for each in root.stored())
    manifest.commit(more(0, 10), run="run", now_ms=now)
    manifest.commit(more(10, 20), run="run", now_ms=now)
    manifest.commit(Change(add=[new], retire=[old.path]), run="run", now_ms=now)
    before = stored(root)
    grace = Grace(leftover_ms=2 * HOUR, retired_ms=4 * HOUR)
    assert sweep(manifest, grace, now_ms=now + HOUR) == []
    assert stored(root) == before, "they may be of a run that goes on, or of a reader"
    sweep(manifest, grace, now_ms=now + 3 * HOUR)
    assert stored(root) == {kept.path, old.path, new.path}
    sweep(manifest, grace, now_ms=now + 5 * HOUR)
    assert stored(root) == {kept.path, new.path}
    assert Manifest.open(root).state.retired == {}


def test_a_sweep_removes_versions_that_nobody_reads(tmp_path: Path) -> None:
    manifest = Manifest(root_of(tmp_path))
    for number in range(40):
        manifest.commit(more(number, number + 1), run="run")
    sweep(manifest, Grace(), now_ms=2**50)
    left = sorted(int(each.stem) for each in (tmp_path / "archive" / "_manifest").iterdir())
    assert left == list(range(16, 41)), "from the last state but one"
    assert Manifest.open(root_of(tmp_path)).state == manifest.state
