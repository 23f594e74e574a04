"""A data directory goes into a shared storage and back, and nothing changes."""

import shutil
import sqlite3
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from posthouse.model.clock import SystemClock
from posthouse.model.errors import DataDamaged, NotFound, Unavailable
from posthouse.storage.files.catalog.rows import put_meta
from posthouse.storage.files.verify import Verification
from posthouse.storage.shared.lease import take_lease
from posthouse.storage.shared.stores import SharedStores
from posthouse.storage.shared.transfer import importing
from posthouse.storage.shared.transfer.cutting import cut
from posthouse.storage.shared.transfer.transfer_lease import TransferRefused
from posthouse.storage.shared.verify import SharedVerification
from tests.storage.batches import append, make_topic, read_all
from tests.storage.shared.transfer.storages import (
    contents,
    do_export,
    do_import,
    fill,
    opened_files,
    opened_shared,
)

FORMATS = Path(__file__).parents[2] / "files"


async def check_books(stores: SharedStores) -> None:
    """All segments are readable, and what is written of them is right."""
    verification = SharedVerification(lambda: stores.database.connect("tests"), stores.objects)
    assert [each async for each in verification.findings()] == []
    async with await stores.database.connect("tests") as connection:
        wrong = await connection.execute("SELECT id FROM log WHERE bytes <> stored_bytes(id)")
        assert await wrong.fetchall() == []


async def test_there_and_back(tmp_path: Path, stores: SharedStores, real_clock: SystemClock) -> None:
    data = tmp_path / "data"
    async with opened_files(data, real_clock) as storage:
        await fill(storage)
    async with opened_files(data, real_clock) as storage:
        before = await contents(storage)

    report = await do_import(data, stores, real_clock)
    assert (report.topics, report.logs) == (3, 6)
    await check_books(stores)
    async with opened_shared(stores) as shared:
        assert await contents(shared) == before
        [topic] = [each for each in shared.topics.values() if each.name == "plain"]
        partition = topic.partition(0)
        end = shared.bounds(partition).end
        await shared.commit([append(partition, b"after")])
        assert await read_all(shared, partition, end) == {end: b"after"}
    async with opened_shared(stores) as shared:
        after = await contents(shared)

    back = tmp_path / "back"
    await do_export(back, stores, real_clock)
    assert list(Verification(back).findings()) == []
    async with opened_files(back, real_clock) as storage:
        assert await contents(storage) == after
        await storage.commit([append(partition, b"local again")])
        await storage.compact()
        assert (await read_all(storage, partition, end))[end + 1] == b"local again"
    assert not (tmp_path / "back.export").exists()
    # The import of the directory is finished: brokers may serve.
    async with await stores.database.connect("tests") as connection:
        found = await connection.execute("SELECT finished_at IS NOT NULL FROM local_import")
        assert await found.fetchall() == [(True,)]


@pytest.mark.parametrize(
    ("archive", "kind"),
    [("format1", "clean"), ("format1", "crashed"), ("format2", "stopped"), ("format2", "killed")],
)
async def test_directories_of_earlier_versions(
    tmp_path: Path, stores: SharedStores, real_clock: SystemClock, archive: str, kind: str
) -> None:
    shutil.unpack_archive(FORMATS / f"{archive}.tar.gz", tmp_path, filter="data")
    data = tmp_path / kind
    shutil.copytree(data, tmp_path / "copy")
    async with opened_files(tmp_path / "copy", real_clock) as storage:
        before = await contents(storage)
    await do_import(data, stores, real_clock)
    await check_books(stores)
    async with opened_shared(stores) as shared:
        found = await contents(shared)
    assert without_times(found) == without_times(before)


def without_times(found: dict[str, object]) -> dict[str, object]:
    """Recovery of the two copies gives producers of replayed batches the time of the recovery."""
    cleaned: dict[str, object] = {}
    for name, each in found.items():
        if isinstance(each, tuple) and len(each) == 6:
            producers = {id: producer._replace(last_time=0) for id, producer in each[1].items()}
            each = (each[0], producers, *each[2:])
        cleaned[name] = each
    return cleaned


async def test_large_segments_are_cut(
    tmp_path: Path, stores: SharedStores, real_clock: SystemClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    async with opened_files(data, real_clock) as storage:
        topic = make_topic(segment_bytes="100000")
        await storage.create_topics([topic])
        for number in range(50):
            await storage.commit([append(topic.partition(0), b"%d" % number * 50)])
        before = await read_all(storage, topic.partition(0))
    monkeypatch.setattr(importing, "_OBJECT_BYTES", 2000)
    monkeypatch.setattr(importing, "cut", partial(cut, segment_bytes=1000))
    await do_import(data, stores, real_clock)
    await check_books(stores)
    async with opened_shared(stores) as shared:
        assert await read_all(shared, topic.partition(0)) == before
    async with await stores.database.connect("tests") as connection:
        found = await connection.execute("SELECT count(*), count(DISTINCT object), max(size) FROM segment")
        [(segments, objects, largest)] = await found.fetchall()
    assert segments > objects > 3 and largest <= 1048


async def test_the_storage_must_be_empty(
    tmp_path: Path, stores: SharedStores, real_clock: SystemClock
) -> None:
    async with opened_files(tmp_path / "data", real_clock) as storage:
        await fill(storage)
    async with opened_shared(stores) as shared:
        await shared.create_topics([make_topic("there")])
    with pytest.raises(TransferRefused, match="not empty"):
        await do_import(tmp_path / "data", stores, real_clock)


async def test_brokers_must_be_stopped(tmp_path: Path, stores: SharedStores, real_clock: SystemClock) -> None:
    async with opened_files(tmp_path / "data", real_clock) as storage:
        await fill(storage)
        with pytest.raises(Unavailable, match="in use by another broker"):
            await do_import(tmp_path / "data", stores, real_clock)
    lease = await take_lease(stores.database, uuid4(), clock=real_clock)
    assert lease is not None
    with pytest.raises(TransferRefused, match="stop all of its brokers"):
        await do_import(tmp_path / "data", stores, real_clock)
    with pytest.raises(TransferRefused, match="stop all of its brokers"):
        await do_export(tmp_path / "other", stores, real_clock)
    await lease.release()
    await do_import(tmp_path / "data", stores, real_clock)


async def test_an_unfinished_import_keeps_brokers_away(
    tmp_path: Path, stores: SharedStores, real_clock: SystemClock
) -> None:
    data = tmp_path / "data"
    async with opened_files(data, real_clock) as storage:
        await fill(storage)
    damaged = sorted(data.glob("topics/*/0-*.log"))[0]
    good = damaged.read_bytes()
    damaged.write_bytes(good[:-10] + b"?" * 10)
    with pytest.raises(DataDamaged, match=damaged.name):
        await do_import(data, stores, real_clock)
    assert await take_lease(stores.database, uuid4(), clock=real_clock) is None
    with pytest.raises(TransferRefused, match="import into this storage is unfinished"):
        await do_export(tmp_path / "out", stores, real_clock)
    async with opened_files(tmp_path / "other", real_clock) as storage:
        await fill(storage)
    with pytest.raises(TransferRefused, match="another data directory"):
        await do_import(tmp_path / "other", stores, real_clock)
    damaged.write_bytes(good)
    async with opened_files(data, real_clock) as storage:
        [topic] = [each for each in storage.topics.values() if each.name == "plain"]
        await storage.commit([append(topic.partition(0), b"more")])
    with pytest.raises(TransferRefused, match="has changed"):
        await do_import(data, stores, real_clock)


async def test_damaged_and_missing_and_swapped_files(
    tmp_path: Path, stores: SharedStores, real_clock: SystemClock
) -> None:
    data = tmp_path / "data"
    async with opened_files(data, real_clock) as storage:
        await fill(storage)
    one, two = sorted(data.glob("topics/*/0-*.log"))[:2]
    content = one.read_bytes(), two.read_bytes()
    one.write_bytes(content[0][:100] + b"?" + content[0][101:])
    with pytest.raises(DataDamaged, match="posthouse log verify"):
        await do_import(data, stores, real_clock)
    one.write_bytes(content[1])
    two.write_bytes(content[0])
    with pytest.raises(DataDamaged, match="moved or swapped"):
        await do_import(data, stores, real_clock)
    one.write_bytes(content[0])
    two.write_bytes(content[1])
    await do_import(data, stores, real_clock)
    await check_books(stores)


async def test_a_directory_of_a_newer_version(
    tmp_path: Path, stores: SharedStores, real_clock: SystemClock
) -> None:
    async with opened_files(tmp_path / "data", real_clock):
        pass
    with sqlite3.connect(tmp_path / "data" / "catalog.sqlite") as connection:
        put_meta(connection, {"format": "99"})
    with pytest.raises(Unavailable, match="format 99"):
        await do_import(tmp_path / "data", stores, real_clock)
    with pytest.raises(NotFound, match="no data directory"):
        await do_import(tmp_path / "nothing", stores, real_clock)
    assert not (tmp_path / "nothing").exists()


async def test_an_export_needs_a_new_directory(
    tmp_path: Path, stores: SharedStores, real_clock: SystemClock
) -> None:
    async with opened_shared(stores):
        pass
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(TransferRefused, match="not empty"):
        await do_export(tmp_path / "there", stores, real_clock)
    (tmp_path / "there" / "file").unlink()
    (tmp_path / "there.export").mkdir()
    (tmp_path / "there.export" / "report").write_text("of the sales department")
    with pytest.raises(TransferRefused, match=r"there\.export is in the way"):
        await do_export(tmp_path / "there", stores, real_clock)
    (tmp_path / "there.export" / "report").unlink()
    await do_export(tmp_path / "there", stores, real_clock)
    async with opened_files(tmp_path / "there", real_clock) as storage:
        assert storage.topics == {}
